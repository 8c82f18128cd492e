// Pages that change by themselves. <main data-live="ADDRESS"> or any other element: the server sends elements with
// ids as Server-Sent Events, and each takes the place of the one that has its id.

const RETRY = 5000;
const streams = new Set();
let stopped = false; // By the visitor.

const connection = find("#connection");
const showConnection = () => {
  if (!connection || !streams.size) return;
  const lost = [...streams].find((stream) => stream.state === "lost");
  const state = lost ? "lost" : [...streams].every((stream) => stream.state === "live") ? "live" : [...streams].some((stream) => stream.state === "paused") ? "paused" : "waiting";
  const words = { live: "Live", paused: "Paused", waiting: "Connecting", lost: lost?.trouble || "Connection lost, trying again" };
  connection.hidden = false;
  connection.dataset.state = state;
  const said = find("[data-is=said]", connection);
  if (said.textContent !== words[state]) said.textContent = words[state];
  const button = find("#pause");
  button.hidden = false;
  button.textContent = stopped ? "Go on" : "Pause";
};

/**
 * Events from `address`, in hand while the page can be seen and nobody has paused it. `handlers` are by name of event.
 * `address` may be a function: it is asked again at each connection. Returns what ends it for good.
 */
const stream = (address, handlers, { pauses = true } = {}) => {
  const self = { state: "waiting", trouble: "", source: null, retry: null };
  const become = (state, trouble = "") => { self.state = state; self.trouble = trouble; showConnection(); };
  self.close = () => { clearTimeout(self.retry); self.source?.close(); self.source = null; };
  self.open = () => {
    self.close();
    const source = new EventSource(typeof address === "function" ? address() : address);
    self.source = source;
    source.onopen = () => become("live");
    source.onerror = () => {
      become("lost");
      // A server that answers with an error is asked again by nobody else.
      if (source.readyState !== EventSource.CLOSED) return;
      self.retry = setTimeout(self.open, RETRY);
      checkSession();
    };
    source.addEventListener("trouble", ({ data }) => become("lost", data));
    for (const [name, act] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => { if (self.state !== "live") become("live"); act(event.data, event); });
    }
  };
  self.review = () => {
    const should = !pauses || (!document.hidden && !stopped);
    if (should && !self.source) { become("waiting"); self.open(); }
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
on("click", "#pause", () => { stopped = !stopped; reviewStreams(); });

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
