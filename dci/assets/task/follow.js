// What a task writes, as it comes; and its form for another run.

const logs = document.getElementById("logs");
const panes = Object.fromEntries([...logs.querySelectorAll(".log")].map((section) => [section.dataset.stream, new Pane(section)]));
for (const pane of Object.values(panes)) searchIn(pane);
dressOneStream();

// The head of the page changes by itself and tells where the task stands.
const head = () => document.getElementById("task-head").dataset;
let resume = logs.dataset.resume; // The output up to there is on the page.
let attempt = /^attempt:(\d+)/.exec(resume)?.[1] ?? logs.dataset.attempt ?? null; // Whose output is on the page.
const isFixed = logs.dataset.fixed !== undefined; // Somebody wants to see an earlier one.
let following = null;
let isFresh = false; // A connection that has told nothing yet.
let hasEnded = head().ended === "true"; // And the page's head knows it.

/** Whether the address asks for a line. */
const isAsked = () => /^#[LE]\d+$/.test(location.hash);
/** Takes of each stream what the page would have if it were loaded again. */
const takeEnds = async (take) => {
  try {
    const answer = await window.disbatch.request(location.pathname, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const section of page.querySelectorAll("#logs .log")) take(panes[section.dataset.stream], section);
    oneStream.replaceChildren(...page.getElementById("one-stream").childNodes);
    dressOneStream();
  } catch { /* The page says itself that the server cannot be reached. */ }
};
/** What comes is of the attempt with this number. */
const begin = (number) => {
  if (attempt !== null && attempt !== number) {
    for (const pane of Object.values(panes)) { pane.ofTask(); pane.clear(); }
    showApart();
    oneStream.replaceChildren();
  }
  attempt = number;
  showAttempt();
};
/** Says which of the attempts is shown. */
const showAttempt = () => {
  for (const tab of document.querySelectorAll("#task-attempts a")) {
    if (tab.dataset.attempt === attempt) tab.setAttribute("aria-current", "true"); else tab.removeAttribute("aria-current");
  }
};
const showFollow = (shown) => { for (const pane of Object.values(panes)) pane.follows.hidden = !shown; };
const stop = () => { following?.end(); following = null; showFollow(false); };
const start = () => {
  showFollow(true);
  const address = () => {
    isFresh = true;
    return resume ? `${logs.dataset.events}?.resume=${encodeURIComponent(resume)}` : logs.dataset.events;
  };
  following = window.disbatch.stream(address, {
    status(data) {
      const task = JSON.parse(data);
      if (task.status === 0) begin(String(task.attempt));
      const wasFresh = isFresh;
      isFresh = false;
      if (!task.ended || !wasFresh) return;
      // All that it has written since would come: its end will do, which the page has.
      stop();
      if (isAsked()) return; // What somebody looks at stays.
      takeEnds((pane, section) => pane.take(section));
    },
    output(data, event) {
      const { attempt: number, stream, offset, text } = JSON.parse(data);
      begin(String(number));
      resume = event.lastEventId || resume;
      panes[stream].append(text, offset, Number(new RegExp(`${stream}:(\\d+)`).exec(resume)?.[1] ?? offset));
    },
    end() {
      stop();
      takeEnds((pane, section) => { if (section.dataset.pieces) pane.takeTimes(section); });
    },
  }, { beats: false });
};
if (!hasEnded && !isFixed) start();

document.addEventListener("disbatch:changed", () => {
  const { ended, waiting, tab } = head();
  document.title = `${tab} – Disbatch`;
  for (const pane of Object.values(panes)) pane.showSteps();
  if (attempt !== null) showAttempt();
  if (isFixed) return;
  if (ended === "true") { hasEnded = true; return; }
  if (following || !(hasEnded || waiting === "true")) return;
  // It is tried again.
  hasEnded = false;
  resume = "";
  start();
});

// #L120 is a line of stdout, #E7 one of stderr.
const toLine = () => {
  const [, letter, number] = /^#([LE])(\d{1,15})$/.exec(location.hash) ?? [];
  const pane = letter && Object.values(panes).find((pane) => pane.letter === letter);
  if (!pane) return;
  showApart();
  pane.busy(pane.part("first"), () => pane.toLine(Number(number)));
};
window.addEventListener("hashchange", toLine);
toLine();

/** What submits such a task again from a shell. The params are as they were written. */
const commandOf = (program, queue) => {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const params = document.getElementById("params-json").textContent;
  if (program === "disbatch") return `disbatch --url ${quoted(location.origin)} create-tasks ${quoted(queue)} ${quoted(params)}`;
  return `curl ${quoted(`${location.origin}/tasks`)} -H 'Content-Type: application/json' -d ${quoted(`{"queue":${JSON.stringify(queue)},"params":${params}}`)}`;
};
document.addEventListener("click", async ({ target }) => {
  // The output of a step begins at a byte.
  const step = target.closest("[data-step]");
  if (step) {
    showApart();
    const has = ({ section }) => stepsIn(section.dataset.stream).some(({ title }) => title === step.dataset.step);
    const pane = Object.values(panes).find((pane) => pane.end && has(pane)) ?? panes.stdout;
    pane?.busy(pane.part("first"), () => pane.showFrom(Number(step.dataset[pane.section.dataset.stream])));
  }
  const copy = target.closest("[data-copies], [data-copy-text], [data-command]");
  if (!copy) return;
  const { copies, copyText, command, queue } = copy.dataset;
  try {
    await navigator.clipboard.writeText(command ? commandOf(command, queue) : copyText ?? document.querySelector(copies).textContent);
    window.disbatch.toast("Copied.");
  } catch { window.disbatch.toast("This browser does not let pages copy here: select it and copy it with the keyboard.", { tone: "info" }); }
});

// Another run: its params are JSON, and are checked before they are sent. They are sent as they were written: a number in them
// may be larger than this browser's.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-again]")) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return; // Twice is once.
  window.disbatch.clearComplaint(form);
  const { ".then": _, ".form_token": __, params, ...fields } = Object.fromEntries(new FormData(form));
  try {
    JSON.parse(params);
  } catch (error) {
    const field = form.elements.namedItem("params");
    window.disbatch.complain(form, `The params are not JSON: ${error.message}`, field);
    field.focus();
    return;
  }
  const isDone = () => form.removeAttribute("aria-busy");
  form.setAttribute("aria-busy", "true");
  window.addEventListener("pagehide", isDone, { once: true }); // Who comes back may submit another one.
  try {
    const answer = await window.disbatch.post("/tasks", `${JSON.stringify(fields).slice(0, -1)},"params":${params}}`);
    const id = answer["MongoDB::InsertManyResult"].inserted[0]._id.$oid;
    window.disbatch.toastNext("This is the new task.");
    location.assign(`/tasks/${id}`);
  } catch (error) {
    isDone();
    window.disbatch.complain(form, error.message);
  }
});
