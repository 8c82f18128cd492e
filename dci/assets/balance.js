// The page of QueueBalance: tiers are moved by buttons or dragged, and everything is checked before it is saved.

const { find, findAll, make, toast, post, place, refresh, clearComplaint, blame } = window.disbatch;
const form = find("#balance-form");
const part = (name) => find(`[data-is="${name}"]`, form);
const say = (words) => { part("state").textContent = words; };

// What is on the page

const tiers = () => findAll("[data-tier]", form);
const namesOf = (tier) => findAll("[data-queue]", tier).map((item) => item.dataset.queue);
const read = () => ({
  times: findAll("#times [data-time]", form).map((row) => Object.fromEntries(findAll("[data-field]", row).map((field) => [field.dataset.field, field.value]))),
  tiers: tiers().filter((tier) => tier.dataset.tier === "tier").map(namesOf),
  default: namesOf(find('[data-tier="default"]', form)),
});

/** Says what is wrong where it is. */
const mark = (problems) => {
  clearComplaint(form);
  const rows = findAll("#times [data-time]", form);
  for (const { at, text } of problems) {
    const [kind, key, name] = at.split("/");
    const cell = kind === "times" ? find(`[data-at="${name}"]`, rows[Number(key)] ?? form)
      : findAll("[data-queue]", form).filter((item) => `queues/${item.dataset.queue}` === at).at(-1);
    if (!cell) continue;
    const words = make("p", { class: "message complaint", "data-client": "" }, text);
    cell.append(words);
    const field = find("input", cell);
    if (field) blame(field, words);
  }
};

// Checking

let asked = 0;
let timer = null;
/** Asks what is wrong and what the week looks like. Returns the answer, unless something has changed meanwhile. */
const check = async () => {
  clearTimeout(timer);
  const number = ++asked;
  const answer = await post("/ui/balance/check", JSON.stringify(read()));
  if (number !== asked) return null;
  mark(answer.problems);
  place(answer.week);
  return answer;
};
let changes = 0;
const changed = () => {
  changes += 1;
  form.dataset.dirty = "";
  part("revert").hidden = false;
  say("Not saved yet.");
  clearTimeout(timer);
  timer = setTimeout(() => check().catch((error) => say(error.message)), 400);
};
const renumber = () => {
  let number = 0;
  for (const tier of tiers()) if (tier.dataset.tier === "tier") find("h3", tier).textContent = `Tier ${++number}`;
};

// Moving queues

const listOf = (tier) => find("ol", tier);
const told = (item) => {
  const tier = item.closest("[data-tier]");
  const all = namesOf(tier);
  part("moved").textContent = `${item.dataset.queue}: ${find("h3", tier).textContent}, ${all.indexOf(item.dataset.queue) + 1} of ${all.length}`;
};
const moves = {
  up: (item) => item.previousElementSibling?.before(item),
  down: (item) => item.nextElementSibling?.after(item),
  left: (item) => beside(item, -1),
  right: (item) => beside(item, 1),
};
const beside = (item, step) => {
  const all = tiers();
  const next = all[all.indexOf(item.closest("[data-tier]")) + step];
  if (next) listOf(next).append(item);
};
form.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.move) {
    const item = button.closest("[data-queue]");
    moves[button.dataset.move](item);
    button.focus();
    told(item);
    changed();
  }
  if (button.hasAttribute("data-remove")) {
    const row = button.closest("[data-time]");
    const next = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    (next ? find("[data-remove]", next) : find("[data-add-time]", form))?.focus();
    changed();
  }
  if (button.hasAttribute("data-add-time")) {
    const row = find("#time-row", form).content.firstElementChild.cloneNode(true);
    find("#times", form).append(row);
    find("select", row).focus();
    changed();
  }
  if (button.hasAttribute("data-add-tier")) {
    const tier = make("section", { class: "tier", "data-tier": "tier" }, make("h3"), make("ol"));
    find('[data-tier="default"]', form).before(tier);
    renumber();
    part("moved").textContent = `${find("h3", tier).textContent} is there.`;
    changed();
  }
});
for (const name of ["input", "change"]) form.addEventListener(name, (event) => { if (event.target.matches("[data-field]")) changed(); });

// Dragging is an addition to the buttons
let dragged = null;
const makeDraggable = () => findAll("[data-queue]", form).forEach((item) => { item.draggable = true; });
makeDraggable();
document.addEventListener("disbatch:changed", makeDraggable);
form.addEventListener("dragstart", (event) => {
  dragged = event.target.closest?.("[data-queue]") ?? null;
  if (dragged) event.dataTransfer.effectAllowed = "move";
});
form.addEventListener("dragover", (event) => {
  const tier = dragged && event.target.closest("[data-tier]");
  if (!tier) return;
  event.preventDefault();
  const over = event.target.closest("[data-queue]");
  if (!over) listOf(tier).append(dragged);
  else if (over !== dragged) {
    const { top, height } = over.getBoundingClientRect();
    if (event.clientY < top + height / 2) over.before(dragged); else over.after(dragged);
  }
});
form.addEventListener("drop", (event) => event.preventDefault());
form.addEventListener("dragend", () => {
  if (dragged) { told(dragged); changed(); }
  dragged = null;
});

// Saving

/** Saves a document if the settings still have the revision `base`. The page has what is saved then, and its revision. */
const store = async (document, base, undoes = false) => {
  const { revision } = await post("/ui/balance", JSON.stringify({ ...document, ".base": base, ".undo": undoes }));
  Object.assign(form.dataset, { saved: JSON.stringify(document), revision });
  return revision;
};
const takeBack = async (document, base) => {
  try { await store(document, base, true); } catch (error) {
    toast(`It could not be taken back. ${error.message}`, { tone: "bad" });
    return;
  }
  toast("Undone.");
  refresh();
};
const save = async () => {
  const number = changes;
  const answer = await check();
  if (!answer) return say("It has changed meanwhile. Save it again.");
  if (answer.problems.length) {
    say(`Not saved: ${answer.problems.length === 1 ? "one thing is" : `${answer.problems.length} things are`} wrong.`);
    find(".complaint", form)?.scrollIntoView({ block: "center" });
    return;
  }
  const { saved, revision } = form.dataset;
  const now = await store(answer.document, revision);
  toast("Balance: saved.", { undo: () => takeBack(JSON.parse(saved), now) });
  if (number !== changes) return; // Something is not saved yet.
  delete form.dataset.dirty;
  part("revert").hidden = true;
  say("Everything is saved.");
  refresh();
};
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = part("save");
  button.disabled = true;
  try { await save(); } catch (error) { say(`Not saved. ${error.message}`); } finally { button.disabled = false; }
});
part("revert").addEventListener("click", () => { delete form.dataset.dirty; location.reload(); });
window.addEventListener("beforeunload", (event) => { if (form.dataset.dirty !== undefined) event.preventDefault(); });
