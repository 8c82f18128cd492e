// The keyboard: single keys while nobody is typing, unless they are switched off in the help (?).

const PLACES = { o: "/", t: "/tasks", s: "/schedules", n: "/nodes", p: "/plugins", b: "/bulk", q: "/balance", a: "/audit", u: "/users", d: "/docs", i: "/about", r: "/arrays", l: "/locks", f: "/files", m: "/admission" };
let after = null; // What was pressed just before.

const switchedOff = () => memory.get("keys") === "off";
{
  const box = find("#keys-on");
  if (box) box.checked = !switchedOff();
}
on("change", "#keys-on", (_, box) => memory.set("keys", box.checked ? null : "off"));

const rowsOf = () => findAll("[data-rows] > *").filter((row) => row.checkVisibility() && find("a[href]", row));
const rowAt = () => document.activeElement?.closest?.("[data-rows] > *") ?? null;

/** Goes to the next row of the list, or the one before. The row's link has the focus, so that Enter opens it. */
const move = (step) => {
  const rows = rowsOf();
  if (!rows.length) return;
  const at = rows.indexOf(rowAt());
  const row = at < 0 ? rows[step > 0 ? 0 : rows.length - 1] : rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  find("a[href]", row).focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
};
const select = () => {
  const box = rowAt() && find("input[type=checkbox][data-select]", rowAt());
  if (box) box.click();
};
const search = () => {
  const field = find("main [type=search], main form[role=search] input:not([type=hidden])");
  if (field) { field.focus(); field.select?.(); } else openPalette();
};
/** Presses what is called so, outside of rows: on a list for the tasks that are selected, or else for the row. */
const pressAction = (wanted) => {
  const boxes = findAll("input[type=checkbox][data-select]");
  if (boxes.length && !boxes.some((box) => box.checked)) select();
  onPage().find(({ name, act }) => act && name === wanted)?.act();
};
const KEYS = {
  C: () => pressAction("Cancel"), R: () => pressAction("Retry"),
  j: () => move(1), k: () => move(-1), x: select, "/": search,
  "?": () => find("#keys")?.showModal(),
  p: () => find("#pause:not([hidden])")?.click(),
  r: () => location.reload(),
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const active = document.activeElement;
  // In a search it empties the field first, as browsers have it.
  if (event.key === "Escape" && isField(active)) return active.type === "search" && active.value ? undefined : active.blur();
  if (switchedOff() || isField(document.activeElement) || find("dialog[open]")) return;
  // Where somebody may not go there is no link to.
  const follows = after === "g" && find(`.places a[href="${PLACES[event.key]}"]`) && PLACES[event.key];
  after = event.key === "g" && after !== "g" ? "g" : null;
  if (follows) { event.preventDefault(); location.assign(follows); return; }
  const act = KEYS[event.key];
  if (act && !(event.key === "p" && after)) { event.preventDefault(); act(); }
});

// <input type="search" data-filter="ID">: shows only those rows of the element whose text has all the words.
const filterRows = (field) => {
  const list = document.getElementById(field.dataset.filter);
  if (!list) return;
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of findAll("[data-rows] > *", list)) {
    const text = row.textContent.toLowerCase();
    const hide = !words.every((word) => text.includes(word));
    if (hide !== row.hasAttribute("data-filtered")) { row.toggleAttribute("data-filtered", hide); row.hidden = hide; }
  }
  // What is looked for may be folded away.
  if (words.length) findAll("details:has([data-rows])", list).forEach((folded) => { folded.open = true; });
};
on("input", "[data-filter]", (_, field) => filterRows(field));
document.addEventListener("disbatch:changed", () => findAll("[data-filter]").forEach((field) => { if (field.value) filterRows(field); }));

// A box that ticks all, and the number of those that are ticked.
const countSelected = () => {
  const boxes = findAll("input[type=checkbox][data-select]");
  const ticked = boxes.filter((box) => box.checked).length;
  findAll("[data-selected]").forEach((place) => { place.textContent = String(ticked); });
  findAll("[data-if-selected]").forEach((place) => { place.hidden = ticked === 0; });
  findAll("[data-select-all]").forEach((box) => { box.checked = ticked > 0 && ticked === boxes.length; box.indeterminate = ticked > 0 && ticked < boxes.length; });
};
on("change", "[data-select-all]", (_, all) => { findAll("input[type=checkbox][data-select]").forEach((box) => { box.checked = all.checked; }); countSelected(); });
on("change", "[data-select]", countSelected);
document.addEventListener("disbatch:changed", countSelected);
countSelected();

window.disbatch = { find, findAll, make, memory, tellTimes, toast, toastNext, stream, place, refresh, request, post, complain, clearComplaint, blame, ask, zone: () => zone.name, clock: (at) => zone.clock.format(at) };
