// The palette (Ctrl-K): one field that finds pages, what can be done on this page, and whatever has a name or an id.

const palette = find("#palette");
// Who is not logged in has no pages to go to.
const hasPlaces = Boolean(find(".places a"));
if (!hasPlaces) find("#open-palette")?.remove();
const openPalette = () => {
  if (!hasPlaces) return;
  const field = find("input", palette);
  field.value = "";
  palette.showModal();
  look(field);
};

/** How well a text fits, the lower the better, as the server has it (`ui/search.rs`); -1: not at all. */
const rank = (text, wanted) => {
  let at = 0;
  const ways = [
    () => text === wanted,
    () => text.startsWith(wanted),
    () => text.split(/[^\p{L}\p{N}]+/u).some((word) => word.startsWith(wanted)),
    () => text.includes(wanted),
    () => [...wanted].every((c) => { at = text.indexOf(c, at) + 1; return at > 0; }),
  ];
  return ways.findIndex((fits) => fits());
};

// Not what a row of a table has, which does not say of which, nor what sends a form that has to be filled in.
const ACTIONS = "main :is(button, a.button):not([data-rows] *)";
const nameOf = (element) => (element.ariaLabel || element.textContent).replace(/\s+/g, " ").trim();
const hasFields = (form) => Boolean(form) && findAll("input, select, textarea", form).some((field) => isField(field) && field.type !== "hidden");
const isOffered = (element) => !element.disabled && element.checkVisibility() && nameOf(element) && !hasFields(element.closest("form"));
const onPage = () => {
  const act = (element) => () => { element.focus(); element.click(); };
  const actions = findAll(ACTIONS).filter(isOffered).map((element) => ({ kind: "on this page", name: nameOf(element), act: act(element) }));
  const pages = findAll(".places a").map((link) => ({ kind: "page", name: nameOf(link), place: link.getAttribute("href") }));
  const known = new Set();
  return [...actions, ...pages].filter(({ name }) => !known.has(name) && known.add(name));
};

let offered = [];
let chosen = 0;
let moved = false; // By the arrows, so that it is to stay chosen.
let asking = Promise.resolve();
let asked = 0;
const pick = (at) => {
  chosen = (at + offered.length) % offered.length;
  findAll("[role=option]", palette).forEach((option, place) => option.setAttribute("aria-selected", String(place === chosen)));
  const option = findAll("[role=option]", palette)[chosen];
  find("input", palette).setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" });
};
const MOST_OFFERED = 12;
const offer = (field, found) => {
  const text = field.value.trim();
  const wanted = text.toLowerCase();
  const before = moved ? offered[chosen] : null;
  const fitting = [...onPage(), ...found].map((one) => [wanted ? rank(one.name.toLowerCase(), wanted) : 0, one]).filter(([fits]) => fits >= 0);
  offered = fitting.sort(([one], [other]) => one - other).map(([, one]) => one).slice(0, MOST_OFFERED);
  // What comes last is what is always there.
  if (text) offered.push({ kind: "search", name: `Tasks with “${text}” in their parameters`, place: `/tasks?.text=${encodeURIComponent(text)}` });
  find("[role=listbox]", palette).replaceChildren(...offered.map(({ kind, name }, at) =>
    make("li", { role: "option", id: `palette-${at}`, "aria-selected": "false" }, make("span", { class: "name" }, name), make("span", { class: "hint" }, kind))));
  pick(Math.max(offered.findIndex(({ kind, name }) => kind === before?.kind && name === before.name), 0));
};
/** Offers what fits: at once what the page knows, and then what the server does. */
const look = (field) => {
  const number = ++asked;
  moved = false;
  offer(field, []);
  const q = field.value.trim();
  asking = !q ? Promise.resolve() : (async () => {
    await new Promise((done) => setTimeout(done, 80));
    if (number !== asked) return;
    const answer = await request(`/search?q=${encodeURIComponent(q)}`, { headers: { Accept: "application/json" } }).catch(() => null);
    const { found = [] } = (answer?.ok && await answer.json().catch(() => null)) || {};
    if (number === asked) offer(field, found);
  })();
};
const take = async () => {
  // What is typed quickly is meant as well.
  for (let last = null; last !== asking; await last) last = asking;
  const { place, act } = offered[chosen] ?? {};
  palette.close();
  if (act) act(); else if (place) location.assign(place);
};
on("input", "#palette input", (_, field) => look(field));
on("submit", "#palette form", (event) => { event.preventDefault(); take(); });
on("keydown", "#palette input", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { event.preventDefault(); moved = true; pick(chosen + step); }
});
on("click", "#palette [role=option]", (_, option) => { pick(findAll("[role=option]", palette).indexOf(option)); take(); });
on("click", "#open-palette", openPalette);
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  if (find("dialog[open]")) return;
  event.preventDefault();
  openPalette();
});
