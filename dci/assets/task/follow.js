// What a task writes, as it comes; and its form for another run.

const logs = document.getElementById("logs");
const panes = Object.fromEntries([...logs.querySelectorAll(".log")].map((section) => [section.dataset.stream, new Pane(section)]));
for (const pane of Object.values(panes)) searchIn(pane);

// The head of the page changes by itself and tells where the task stands.
const head = () => document.getElementById("task-head").dataset;
let resume = logs.dataset.resume; // The output up to there is on the page.
let attempt = /^attempt:(\d+)/.exec(resume)?.[1] ?? null;
let following = null;
let isFresh = false; // A connection that has told nothing yet.
let hasEnded = head().ended === "true"; // And the page's head knows it.

/** Shows of each stream what the page would have if it were loaded again. */
const takeEnds = async () => {
  try {
    const answer = await window.disbatch.request(location.pathname, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const section of page.querySelectorAll("#logs .log")) panes[section.dataset.stream]?.take(section);
  } catch { /* The page says itself that the server cannot be reached. */ }
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
      const wasFresh = isFresh;
      isFresh = false;
      if (!task.ended || !wasFresh) return;
      // All that it has written since would come: its end will do, which the page has.
      stop();
      takeEnds();
    },
    output(data, event) {
      const { attempt: number, stream, text } = JSON.parse(data);
      if (attempt !== null && attempt !== String(number)) for (const pane of Object.values(panes)) pane.clear();
      attempt = String(number);
      resume = event.lastEventId || resume;
      const pane = panes[stream];
      pane.end = Number(new RegExp(`${stream}:(\\d+)`).exec(resume)?.[1] ?? pane.end);
      pane.append(text);
    },
    end: stop,
  }, { beats: false });
};
if (!hasEnded) start();

document.addEventListener("disbatch:changed", () => {
  const { ended, waiting } = head();
  if (ended === "true") { hasEnded = true; return; }
  if (following || !(hasEnded || waiting === "true")) return;
  // It is tried again.
  hasEnded = false;
  resume = "";
  attempt = null;
  for (const pane of Object.values(panes)) pane.clear();
  start();
});

// Another run: its params are JSON, and are checked before they are sent. They are sent as they were written: a number in them
// may be larger than this browser's.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-again]")) return;
  event.preventDefault();
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
  try {
    const answer = await window.disbatch.post("/tasks", `${JSON.stringify(fields).slice(0, -1)},"params":${params}}`);
    const id = answer["MongoDB::InsertManyResult"].inserted[0]._id.$oid;
    window.disbatch.toastNext("This is the new task.");
    location.assign(`/tasks/${id}`);
  } catch (error) {
    window.disbatch.complain(form, error.message);
  }
});
