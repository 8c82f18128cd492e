// The page of a queue: forms for new tasks, and files of them.

const { find, findAll, make, toast, complain, clearComplaint, blame, request } = window.disbatch;

// What was submitted, and where it is

const MOST_LINKS = 10;
document.addEventListener("disbatch:done", ({ target, detail: { answer } }) => {
  if (!target.matches?.("[data-submits]")) return;
  const isArray = typeof answer.array === "string";
  if (!isArray && !Array.isArray(answer.ids)) return;
  // What the field for JSON has begun with is submitted, too.
  if (target !== paramsForm && filledIn) delete paramsForm?.dataset.dirty;
  const line = make("p", { class: "message good" }, "Submitted: ");
  if (isArray) line.append("array ", make("a", { href: `/arrays/${encodeURIComponent(answer.array)}` }, answer.array));
  else {
    for (const id of answer.ids.slice(0, MOST_LINKS)) line.append(make("a", { href: `/tasks/${encodeURIComponent(id)}` }, id), " ");
    if (answer.count > MOST_LINKS) line.append(`and ${answer.count - MOST_LINKS} more`);
  }
  const place = find("#submitted");
  place.prepend(line);
  while (place.children.length > 5) place.lastElementChild.remove();
});

// What is wrong with a field is said at the field

const mark = (form, fields) => {
  for (const [pointer, text] of Object.entries(fields)) {
    const place = find(`[data-param="${CSS.escape(pointer)}"]`, form);
    if (!place) continue;
    const words = make("p", { class: "message complaint", "data-client": "" }, text);
    place.append(words);
    findAll("input, select, textarea", place).forEach((field) => blame(field, words));
  }
  find("[aria-invalid]", form)?.focus();
};
document.addEventListener("htmx:responseError", ({ detail: { xhr, requestConfig } }) => {
  const form = requestConfig.elt;
  if (!form.matches("[data-submits]")) return;
  let fields = {};
  try { fields = JSON.parse(xhr.responseText).fields ?? {}; } catch { /* It is told at the end of the form. */ }
  mark(form, fields);
});

// Patterns are those of JSON Schema: anywhere in the text, and not as HTML has them.
for (const field of findAll("[data-pattern]")) {
  let pattern = null;
  try { pattern = new RegExp(field.dataset.pattern, "u"); } catch { /* The plugin has to say it. */ }
  const check = () => field.setCustomValidity(pattern && field.value && !pattern.test(field.value) ? `This does not match ${field.dataset.pattern}` : "");
  field.addEventListener("input", check);
  check();
}

// The field for JSON begins with what the form says

const paramsForm = find("#params-form");
const paramsJson = find("#params-json");
let filledIn = paramsJson.value;
document.addEventListener("disbatch:tab", async ({ detail: { tab } }) => {
  if (tab.getAttribute("href") !== "#by-json" || !paramsForm || paramsJson.value !== filledIn) return;
  const body = new URLSearchParams([...new FormData(paramsForm)].filter(([name]) => !name.startsWith(".")));
  body.set(".preview", "1");
  const answer = await request(paramsForm.action, { method: "POST", body, headers: { Accept: "application/json" } }).catch(() => null);
  if (!answer?.ok || paramsJson.value !== filledIn) return;
  // It is taken as it is written: a number in it may be larger than this browser's.
  const params = (await answer.text()).trim();
  if (paramsJson.value !== filledIn) return;
  paramsJson.value = params === "{}" ? "" : params;
  filledIn = paramsJson.value;
});

// The parameter that each element of an array has of its own is not asked for

const giveWay = () => {
  const [array, key] = [".array", ".array_key"].map((name) => paramsForm.elements.namedItem(name).value);
  const own = `/${(key || "item").replaceAll("~", "~0").replaceAll("/", "~1")}`;
  for (const place of findAll("[data-param]", paramsForm)) {
    const { param } = place.dataset;
    const gives = array !== "" && (param === own || param.startsWith(`${own}/`));
    findAll("input, select, textarea", place).forEach((field) => { field.disabled = gives; });
  }
};
paramsForm?.addEventListener("input", giveWay);
// A browser that comes back to the page may have kept what was typed.
if (paramsForm) giveWay();

// Files with an object on each line

const MOST_SHOWN = 100;
const MOST_BYTES = 4 * 1024 * 1024;
const file = find("#file-form");

/** The lines of a file: number, text, and how much of the file has been read. */
async function* linesOf(blob) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const reader = blob.stream().getReader();
  let rest = "";
  let number = 0;
  let bytes = 0;
  for (;;) {
    const { value, done } = await reader.read();
    try { rest += done ? decoder.decode() : decoder.decode(value, { stream: true }); } catch { throw new Error("The file is not UTF-8 text."); }
    bytes += value?.length ?? 0;
    const lines = rest.split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) yield { number: ++number, text: line.trim(), bytes };
    if (done) return;
  }
}

const badKey = (value) => {
  if (Array.isArray(value)) return value.map(badKey).find((key) => key !== undefined);
  if (value === null || typeof value !== "object") return undefined;
  for (const [key, inner] of Object.entries(value)) {
    if (key === "" || key.includes(".") || key.includes("\0")) return key;
    const bad = badKey(inner);
    if (bad !== undefined) return bad;
  }
  return undefined;
};
/** What is wrong with a line, if something is. */
const wrongWith = (text) => {
  let value;
  try { value = JSON.parse(text); } catch (error) { return `is not JSON: ${error.message}`; }
  if (value === null || typeof value !== "object" || Array.isArray(value)) return "is no JSON object";
  if (!Object.keys(value).length) return "has no parameters";
  const key = badKey(value);
  return key === undefined ? null : `has the key ${JSON.stringify(key)}: keys must not be empty or contain a dot`;
};

/** Trouble that has nothing to do with a line: it may be over later. */
class Trouble extends Error {}
const submit = async (lines, key) => {
  // Lines are sent as they are: a number in them may be larger than this browser's.
  const params = lines.map(({ text }) => text).join(",");
  const body = `{"queue":${JSON.stringify(file.dataset.queue)},".idempotency_key":${JSON.stringify(key)},"params":[${params}]}`;
  let answer;
  try {
    answer = await request("/tasks", { method: "POST", body, headers: { Accept: "application/json", "Content-Type": "application/json" } });
  } catch { throw new Trouble("The server cannot be reached."); }
  if (answer.ok) return lines.length;
  const { error } = await answer.json().catch(() => ({}));
  const text = typeof error === "string" ? error : `The server could not do it (${answer.status}).`;
  if (answer.status !== 400 && answer.status !== 413) throw new Trouble(text);
  if (lines.length === 1) {
    const { number } = lines[0];
    if (!job.problems.some((known) => known.number === number)) job.problems.push({ number, text });
    return 0;
  }
  // Which line it is, is found by halves.
  const half = Math.ceil(lines.length / 2);
  return await submit(lines.slice(0, half), `${key}a`) + await submit(lines.slice(half), `${key}b`);
};

let job = null;
const part = (name) => find(`[data-is="${name}"]`, file);
const report = (said, share) => {
  part("progress").hidden = false;
  find("progress", part("progress")).value = share;
  part("said").textContent = said;
};
const showProblems = () => {
  const list = part("problems");
  const said = job.problems.slice(0, MOST_SHOWN).map(({ number, text }) => make("span", {}, `Line ${number} ${text}`));
  list.replaceChildren(...said.map((words) => make("li", { class: "message" }, words)));
  const more = job.problems.length - MOST_SHOWN;
  if (more > 0) list.append(make("li", { class: "message" }, `And ${more} more lines.`));
  list.hidden = !job.problems.length;
};
const offer = (words, act) => {
  const button = part("go-on");
  button.hidden = !words;
  button.textContent = words;
  button.onclick = act;
};
let isWorking = false; // On a file.
const busy = (is) => {
  isWorking = is;
  part("stop").hidden = !is;
  find("button.primary", file).disabled = is;
  if (is) offer("", null);
};
const count = (number) => `${number.toLocaleString("en")} ${number === 1 ? "task" : "tasks"}`;

const check = async () => {
  busy(true);
  for await (const { number, text, bytes } of linesOf(job.blob)) {
    if (job.stopped) break;
    if (!text) continue;
    const wrong = wrongWith(text);
    if (wrong) { job.bad.add(number); job.problems.push({ number, text: wrong }); } else job.good += 1;
    if (number % 1000 === 0) { report(`Checked ${number.toLocaleString("en")} lines`, bytes / job.blob.size); await new Promise((done) => setTimeout(done)); }
  }
  busy(false);
  showProblems();
  if (job.stopped) return report("Stopped. Nothing was submitted.", 0);
  if (!job.good) return report(job.problems.length ? "Nothing was submitted: no line can be used." : "Nothing was submitted: the file is empty.", 0);
  if (!job.problems.length) return send();
  report(`Nothing was submitted yet: ${job.problems.length.toLocaleString("en")} of the lines cannot be used.`, 0);
  offer(`Submit the other ${count(job.good)}`, run(send));
};

const send = async () => {
  busy(true);
  let batch = [];
  let size = 0;
  let number = 0;
  const flush = async (bytes) => {
    number += 1;
    // What an interrupted run has submitted is not sent again.
    if (batch.length && number > job.batches) {
      job.done += await submit(batch, `${job.key}.${number}`);
      job.batches = number;
      report(`${count(job.done)} of ${job.good.toLocaleString("en")} submitted`, bytes / job.blob.size);
    }
    batch = [];
    size = 0;
  };
  for await (const line of linesOf(job.blob)) {
    if (!line.text || job.bad.has(line.number)) continue;
    batch.push(line);
    size += line.text.length;
    if (batch.length >= job.most || size >= MOST_BYTES) await flush(line.bytes);
    if (job.stopped) break;
  }
  if (!job.stopped) await flush(job.blob.size);
  busy(false);
  showProblems();
  if (job.stopped) {
    job.stopped = false;
    report(`Stopped: ${count(job.done)} of ${job.good.toLocaleString("en")} submitted`, job.done / job.good);
    return offer("Go on", run(send));
  }
  const said = `${count(job.done)} of the file submitted.`;
  report(said, 1);
  toast(said, job.problems.length ? { tone: "info" } : {});
  file.reset();
};

/** Runs a step, and says where it broke off. */
const run = (step) => async () => {
  try { await step(); } catch (error) {
    busy(false);
    showProblems();
    report(`Broken off after ${count(job.done)}`, job.good ? job.done / job.good : 0);
    complain(file, error.message);
    if (error instanceof Trouble) offer("Go on", () => { clearComplaint(file); run(step)(); });
  }
};

file?.addEventListener("submit", (event) => {
  event.preventDefault();
  const blob = file.elements.file.files[0];
  if (!blob) return;
  clearComplaint(file);
  const key = `file ${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
  job = { blob, key, most: Number(file.elements.batch.value), bad: new Set(), problems: [], good: 0, done: 0, batches: 0, stopped: false };
  run(check)();
});
part("stop")?.addEventListener("click", () => { job.stopped = true; });

// Neither the rest of a file nor what has been typed is to be lost by a key that leads elsewhere
window.addEventListener("beforeunload", (event) => { if (isWorking || find("form[data-submits][data-dirty]")) event.preventDefault(); });
