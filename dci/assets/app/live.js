// Pages that change by themselves. <main data-live="ADDRESS"> or any other element: the server sends elements with
// ids as Server-Sent Events, and each takes the place of the one that has its id.

const TRIES = [1000, 2000, 5000]; // After so long it is tried again, the last one from then on.
const QUIET = 12000; // The server says something every five seconds (`HEARTBEAT` in `live.rs`).
const pauseAfter = (tries) => TRIES[Math.min(tries, TRIES.length - 1)];
const streams = new Set();
let stopped = false; // By the visitor.

const connection = find("#connection");
const showConnection = () => {
  const isStill = find("main[data-still]") !== null; // Only who may see all queues has a page of them that is live.
  if (!connection || !(streams.size || isStill || isEnded)) return;
  const at = (state) => [...streams].find((stream) => stream.state === state);
  const worst = at("lost") ?? at("quiet");
  const state = isEnded ? "ended" : worst?.state ?? (!streams.size ? "still" : (at("paused") ?? at("waiting"))?.state ?? "live");
  const words = {
    live: "Live", paused: "Updates paused", waiting: "Connecting", quiet: "No news", ended: "Session ended",
    lost: worst?.trouble || "Connection lost", still: "Not live: r loads it again",
  };
  connection.hidden = false;
  connection.dataset.state = state;
  const say = (text, place) => { if (place.textContent !== text) place.textContent = text; };
  say(words[state], find("[data-is=said]", connection));
  // Nobody is to be read each second of it.
  say({ quiet: `for ${Math.round((Date.now() - worst?.fresh) / 1000)} s`, lost: `as of ${clock(worst?.fresh)}` }[state] ?? "", find("#since"));
  document.documentElement.toggleAttribute("data-stale", ["quiet", "lost"].includes(state));
  const button = find("#pause");
  button.hidden = !(streams.size || isEnded);
  say(isEnded ? "Log in" : stopped ? "Resume updates" : "Pause updates", button);
};
const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

/**
 * Events from `address`, in hand while the page can be seen and nobody has paused it. `handlers` are by name of event.
 * `address` may be a function: it is asked again at each connection. One that does not `beat` may be silent for long; it is
 * opened again together with those that do. Returns what ends it for good.
 */
const stream = (address, handlers, { pauses = true, beats = true } = {}) => {
  // `asked`, `heard` and `fresh`: when it was opened, when the server said something, and when it knew how things are.
  const self = { state: "waiting", trouble: "", source: null, retry: null, tries: 0, asked: 0, heard: 0, fresh: Date.now() };
  const become = (state, trouble = "") => { self.state = state; self.trouble = trouble; showConnection(); };
  const hear = () => { self.heard = Date.now(); self.tries = 0; };
  const isLive = () => { self.fresh = Date.now(); if (self.state !== "live") become("live"); };
  self.close = () => { clearTimeout(self.retry); self.source?.close(); self.source = null; };
  self.open = () => {
    self.close();
    self.asked = Date.now();
    const source = new EventSource(typeof address === "function" ? address() : address);
    self.source = source;
    source.onopen = isLive;
    source.onerror = () => {
      // Whoever is not let in any more is told so by the answer to something else.
      if (source.readyState === EventSource.CLOSED) checkSession();
      self.close();
      self.retry = setTimeout(self.open, pauseAfter(self.tries++));
      become("lost");
    };
    source.addEventListener("trouble", ({ data }) => { hear(); become("lost", data); });
    for (const [name, act] of Object.entries({ alive() {}, ...handlers })) {
      source.addEventListener(name, (event) => { hear(); isLive(); act(event.data, event); });
    }
  };
  /** Notices that nothing comes any more, which a connection does not tell by itself. */
  self.watch = () => {
    if (!beats || !self.source || Date.now() - Math.max(self.asked, self.heard) < QUIET) return;
    become(self.state === "quiet" || self.state === "lost" ? "lost" : "quiet");
    streams.forEach((one) => one.renew());
  };
  self.review = () => {
    const should = !isEnded && (!pauses || (!document.hidden && !stopped));
    if (should && !self.source) { self.tries = 0; become("waiting"); self.open(); }
    if (!should) { self.close(); become("paused"); }
  };
  // Whoever connects is sent everything.
  self.renew = () => { if (self.source) self.open(); };
  self.end = () => { self.close(); streams.delete(self); };
  streams.add(self);
  self.review();
  return self;
};
const reviewStreams = () => streams.forEach((one) => one.review());
document.addEventListener("visibilitychange", reviewStreams);
window.addEventListener("pagehide", () => streams.forEach((one) => one.close()));
window.addEventListener("pageshow", (event) => { if (event.persisted) reviewStreams(); });
on("click", "#pause", () => {
  if (isEnded) { endSession(); return; }
  stopped = !stopped;
  reviewStreams();
});
setInterval(() => {
  streams.forEach((one) => one.watch());
  if ([...streams].some(({ state }) => state === "quiet")) showConnection();
}, 1000);

/** Whether somebody is busy with `element`: it is not to be changed under their hands. */
const isInUse = (element) => {
  if (element.matches("dialog[open], form[data-dirty], [data-keep]")) return true;
  const active = document.activeElement;
  return isField(active) && (element === active || (element.matches("form") && element.contains(active)));
};

const behind = new Set(); // What should have changed, and was left alone.
/** Whether `element` is to be left alone for now. */
const leave = (element) => {
  const inUse = isInUse(element);
  if (inUse && !element.matches("[data-keep]")) behind.add(element);
  return inUse;
};

/** Makes `old` what `fresh` is, element by element, and leaves alone what somebody is busy with. */
const morph = (old, fresh) => {
  if (old.matches("dialog[open]")) { leave(old); return old; }
  const [now] = Idiomorph.morph(old, fresh, {
    morphStyle: "outerHTML",
    callbacks: {
      beforeNodeMorphed(from, to) {
        if (from.nodeType !== Node.ELEMENT_NODE) return true;
        // What is told in the reader's zone already.
        if (from.matches("[data-zone]") || (from.matches("time[datetime]") && from.dateTime === to.dateTime)) return false;
        return !leave(from);
      },
      // What the page has made itself stays; so does what somebody is busy with, unless its whole surroundings go.
      beforeNodeRemoved: (node) => node.nodeType !== Node.ELEMENT_NODE || !(node.matches("[data-client]") || leave(node)),
      // Nor is what somebody has opened, ticked or filtered away to be taken back.
      beforeAttributeUpdated(name, node) {
        if (name === "open") return !node.matches("details, dialog");
        if (name === "checked") return !node.matches("[data-select]");
        if (name === "hidden") return !node.hasAttribute("data-filtered");
        return name !== "data-filtered" && name !== "aria-busy";
      },
    },
  }) ?? [];
  const element = now ?? old;
  window.htmx?.process(element);
  return element;
};

/** Puts elements with ids, as HTML, in the place of those that have these ids. */
const place = (html, root = document) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const fresh of [...template.content.children]) {
    const old = document.getElementById(fresh.id);
    if (old && root.contains(old)) tellTimes(morph(old, fresh).parentElement ?? document);
  }
  document.dispatchEvent(new CustomEvent("disbatch:changed"));
};

let refreshes = 0;
/** Fetches this page again and brings its content up to date. Says so if that fails. */
const refresh = async () => {
  const number = ++refreshes;
  let fresh = null;
  try {
    const answer = await request(location.href, { headers: { Accept: "text/html" } });
    if (isOver(answer)) return;
    if (answer.ok) fresh = find("main", new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* It is told below. */ }
  if (number !== refreshes) return;
  if (!fresh) { toast("What is shown may be old: this page could not be loaded again.", { tone: "bad" }); return; }
  morph(find("main"), document.importNode(fresh, true));
  tellTimes();
  document.dispatchEvent(new CustomEvent("disbatch:changed"));
};

const ofPage = findAll("[data-live]").map((root) => {
  let version = null;
  return stream(root.dataset.live, {
    message: (html) => place(html, root),
    version: (now) => {
      if (version && version !== now) toast("The server has been renewed. Load the page again to have its new pages.", { tone: "info" });
      version = now;
    },
  });
});

// What was left alone is brought up to date when nobody is busy with it any more: with what is there then, and not with what
// came meanwhile.
const catchUp = () => {
  for (const element of behind) if (!element.isConnected) behind.delete(element);
  if ([...behind].every(isInUse)) return;
  behind.clear();
  if (ofPage.length) ofPage.forEach((one) => one.renew()); else refresh();
};
for (const name of ["focusout", "reset", "close", "disbatch:done"]) document.addEventListener(name, () => { if (behind.size) setTimeout(catchUp); }, true);

showConnection(); // Where nothing is live, which is said, too.

// A page that could not be had is asked for until it can be.
if (find("[data-retries]")) {
  let tries = 0;
  const again = async () => {
    const { ok, status } = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => ({ status: 503 }));
    if (ok || status !== 503) location.reload();
    else setTimeout(again, pauseAfter(tries++));
  };
  setTimeout(again, pauseAfter(tries++));
}
