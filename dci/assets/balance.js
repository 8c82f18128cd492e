// The page of QueueBalance: tiers are moved by buttons or dragged, and everything is checked before it is saved.

const { toast, post, complain, place, refresh } = window.disbatch;
const form = document.querySelector("#balance-form");
const find = (selector, root = form) => root.querySelector(selector);
const findAll = (selector, root = form) => [...root.querySelectorAll(selector)];
const part = (name) => find(`[data-is="${name}"]`);
const say = (words) => { part("state").textContent = words; };

// What is on the page

const tiers = () => findAll("[data-tier]");
const namesOf = (tier) => findAll("[data-queue]", tier).map((item) => item.dataset.queue);
const read = () => ({
  times: findAll("#times [data-time]").map((row) => Object.fromEntries(findAll("[data-field]", row).map((field) => [field.dataset.field, field.value]))),
  tiers: tiers().filter((tier) => tier.dataset.tier === "tier").map(namesOf),
  default: namesOf(find('[data-tier="default"]')),
});
const clean = (root) => root.querySelectorAll(".complaint").forEach((old) => old.remove());

/** Says what is wrong where it is. */
const mark = (problems) => {
  clean(form);
  findAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
  const rows = findAll("#times [data-time]");
  for (const { at, text } of problems) {
    const [kind, key, field] = at.split("/");
    const cell = kind === "times" ? find(`[data-at="${field}"]`, rows[Number(key)] ?? form)
      : findAll("[data-queue]").filter((item) => `queues/${item.dataset.queue}` === at).at(-1);
    if (!cell) continue;
    const words = document.createElement("p");
    words.className = "message complaint";
    words.dataset.client = "";
    words.textContent = text;
    cell.append(words);
    cell.querySelector("input")?.setAttribute("aria-invalid", "true");
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
const changed = () => {
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
    (next ? find("[data-remove]", next) : find("[data-add-time]"))?.focus();
    changed();
  }
  if (button.hasAttribute("data-add-time")) {
    const row = find("#time-row").content.firstElementChild.cloneNode(true);
    find("#times").append(row);
    find("select", row).focus();
    changed();
  }
  if (button.hasAttribute("data-add-tier")) {
    const tier = document.createElement("section");
    tier.className = "tier";
    tier.dataset.tier = "tier";
    tier.append(document.createElement("h3"), document.createElement("ol"));
    find('[data-tier="default"]').before(tier);
    renumber();
    part("moved").textContent = `${find("h3", tier).textContent} is there.`;
    changed();
  }
});
form.addEventListener("input", (event) => { if (event.target.matches("[data-field]")) changed(); });

// Dragging is an addition to the buttons
let dragged = null;
const makeDraggable = () => findAll("[data-queue]").forEach((item) => { item.draggable = true; });
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

const saved = () => JSON.parse(form.dataset.saved);
const save = async (document, said, undo) => {
  await post("/balance", JSON.stringify(document));
  delete form.dataset.dirty;
  part("revert").hidden = true;
  say("Everything is saved.");
  toast(said, undo ? { undo } : {});
  await refresh();
};
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = part("save");
  button.disabled = true;
  try {
    const answer = await check();
    if (!answer) return say("It has changed meanwhile. Save it again.");
    if (answer.problems.length) {
      say(`Not saved: ${answer.problems.length === 1 ? "one thing is" : `${answer.problems.length} things are`} wrong.`);
      find(".complaint")?.scrollIntoView({ block: "center" });
      return;
    }
    const before = saved();
    await save(answer.document, "Balance: saved.", () => save(before, "Taken back.").catch((error) => toast(error.message, { tone: "bad" })));
  } catch (error) { say(`Not saved. ${error.message}`); } finally { button.disabled = false; }
});
part("revert").addEventListener("click", () => { delete form.dataset.dirty; location.reload(); });
window.addEventListener("beforeunload", (event) => { if (form.dataset.dirty !== undefined) event.preventDefault(); });

// Pausing leaves what is not saved alone

document.addEventListener("submit", async (event) => {
  if (event.target.id !== "disable-form") return;
  event.preventDefault();
  disable(Math.floor(new Date(event.target.elements.until.value).getTime() / 1000));
});
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("#disable-form button[type=button]");
  if (!button) return;
  if (button.hasAttribute("data-enable")) disable(null);
  else disable(Math.floor(Date.now() / 1000) + Number(button.dataset.hours) * 3600);
});
const disable = async (until) => {
  const pausing = document.querySelector("#disable-form");
  clean(pausing);
  if (until !== null && !(until > Date.now() / 1000)) return complain(pausing, "This time has passed already.");
  try {
    await post("/balance", JSON.stringify({ ...saved(), disabled: until }));
    toast(until === null ? "QueueBalance works again." : `QueueBalance is disabled until ${new Date(until * 1000).toLocaleString()}.`);
    await refresh();
  } catch (error) { complain(pausing, error.message); }
};
