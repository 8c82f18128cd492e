// The form of a schedule: what it would do is shown while it is filled in.

const { find, request, post, place, complain, clearComplaint } = window.disbatch;

const WAIT = 300;
const form = find("#schedule-form");
// What decides about times. Nothing else is sent, least of all what is secret.
const DECIDES = ["cron", "zone", "gap", "fold", "start", "end", "jitter", "calendars.exclude", "calendars.only"];

let asked = 0;
const preview = async () => {
  const number = ++asked;
  const body = new URLSearchParams([...new FormData(form)].filter(([name, value]) => DECIDES.includes(name) && value));
  body.set(".html", "1");
  const answer = await request("/schedules/preview", { method: "POST", body, headers: { Accept: "application/json" } }).catch(() => null);
  if (number !== asked || !answer?.ok) return;
  const { html } = await answer.json().catch(() => ({}));
  // Somebody may have typed on.
  if (number !== asked || typeof html !== "string") return;
  place(html);
};

let timer = null;
form.addEventListener("input", ({ target }) => {
  if (!DECIDES.includes(target.name)) return;
  clearTimeout(timer);
  timer = setTimeout(preview, WAIT);
});
preview();

// A queue whose plugin has a template fills in a form that nobody has begun to fill in.
const queue = form.elements.queue;
let isTouched = false;
form.addEventListener("input", ({ target }) => { if (target !== queue) isTouched = true; });
queue.addEventListener("change", () => {
  const isNew = !form.elements[".schedule"];
  if (isNew && !isTouched && queue.selectedOptions[0]?.hasAttribute("data-template")) {
    delete form.dataset.dirty;
    location.assign(`/schedules/new?queue=${encodeURIComponent(queue.value)}`);
  }
});

// The fields of the plugin are written into the JSON, which alone is sent, and which whoever knows better writes.
const fields = find("[data-params]", form);
const json = form.elements.params;
if (fields) {
  let written = 0;
  fields.disabled = false;
  const own = () => new URLSearchParams([...new FormData(form)].filter(([name]) => name.startsWith("/")));
  const keyOf = (name) => name.split("/")[1].replaceAll("~1", "/").replaceAll("~0", "~");
  // What its fields cannot hold stays in the JSON until they are used.
  const used = new Set();
  /** Resolves to whether it is written: somebody may have typed on. */
  const write = async () => {
    const number = ++written;
    const body = own();
    body.set(".preview", "1");
    const read = await post(fields.dataset.params, body);
    if (number !== written) return false;
    let before = {};
    try { before = JSON.parse(json.value || "{}"); } catch { /* It is written anew. */ }
    const kept = Object.entries(before).filter(([key]) => !used.has(key));
    const now = Object.entries(read).filter(([key]) => used.has(key) || !(key in before));
    json.value = JSON.stringify(Object.fromEntries([...kept, ...now]), null, 3);
    return true;
  };
  fields.addEventListener("input", ({ target: { name } }) => {
    if (name?.startsWith("/")) used.add(keyOf(name));
    write().catch(() => { /* It is told when it is to be saved. */ });
  });
  // What was just typed is not in the JSON yet, and what could not be read is not to be left out without a word.
  form.addEventListener("htmx:confirm", async (event) => {
    if (!written || fields.disabled) return;
    event.preventDefault();
    form.setAttribute("aria-busy", "true"); // Twice is once.
    clearComplaint(form);
    let wrong = null;
    try { while (!(await write())); } catch (error) { wrong = error.message; }
    form.removeAttribute("aria-busy");
    if (wrong === null) event.detail.issueRequest(true);
    else complain(form, `Not saved. ${wrong}`);
  });
  json.addEventListener("input", () => { fields.disabled = true; });
  queue.addEventListener("change", () => { fields.disabled = fields.hidden = true; });
  form.addEventListener("htmx:configRequest", ({ detail: { parameters } }) => {
    for (const name of Object.keys(parameters)) if (name.startsWith("/")) delete parameters[name];
  });
}

// What has been typed is not to be lost by a key that leads elsewhere.
let isSaved = false;
form.addEventListener("disbatch:done", () => { isSaved = true; });
window.addEventListener("beforeunload", (event) => { if (isTouched && !isSaved && form.dataset.dirty !== undefined) event.preventDefault(); });
