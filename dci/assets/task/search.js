// Search in what a task has written: marks what is found of what is shown, and goes from one to the next with Enter; all of the
// output is searched by the server, which tells lines.

const MARKED = 2_000; // So many are marked.
const SOON = 150;

const marks = {};
for (const name of ["found", "found-now"]) {
  if (window.CSS?.highlights && window.Highlight) {
    marks[name] = new Highlight();
    CSS.highlights.set(name, marks[name]);
  }
}

/** The part of a line from one character to another. */
const rangeOf = (line, from, to) => {
  const range = document.createRange();
  const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
  let at = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const end = at + node.length;
    if (at <= from && from < end) range.setStart(node, from - at);
    if (at < to && to <= end) { range.setEnd(node, to - at); break; }
    at = end;
  }
  return range;
};

/** The list of lines that the server has found. Returns what fills it. */
const listLines = (pane) => {
  const [box, words, more] = ["found", "found-words", "found-more"].map(pane.part);
  const places = box.querySelector("ol");
  let query = null;
  let next = null;
  const entry = ({ number, offset, text }, exact) => {
    const link = document.createElement("a");
    link.href = `#${pane.letter}${number}`;
    link.textContent = exact ? String(number) : "…";
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (exact) history.replaceState(history.state, "", link.href);
      pane.busy(more, () => exact ? pane.toLine(number, offset) : pane.showFrom(offset));
    });
    const code = document.createElement("code");
    code.textContent = text;
    const line = document.createElement("li");
    line.append(link, " ", code);
    return line;
  };
  const goOn = async () => {
    const answer = await pane.ask(next ? { ...query, ...next } : query);
    places.append(...answer.lines.map((line) => entry(line, answer.exact)));
    next = answer.ended ? null : { from: answer.position, number: answer.number };
    const count = places.childElementCount;
    const what = query.search === undefined ? (count === 1 ? "line looks like an error" : "lines look like errors") : count === 1 ? "line found" : "lines found";
    words.textContent = `${count.toLocaleString("en")} ${what} in ${answer.ended ? "all" : `the first ${sized(answer.position)} of`} ${sized(Math.max(pane.end, answer.position))}.`;
    more.hidden = !next;
    box.hidden = false;
  };
  more.addEventListener("click", () => pane.busy(more, goOn));
  pane.part("found-close").addEventListener("click", () => { box.hidden = true; });
  return (wanted) => {
    query = wanted;
    next = null;
    places.replaceChildren();
    return goOn();
  };
};

const searchIn = (pane) => {
  const { section, pre } = pane;
  const list = listLines(pane);
  const field = section.querySelector('[data-is="search"]');
  const said = section.querySelector('[data-is="hits"]');
  const everywhere = pane.part("everywhere");
  let hits = [];
  let now = -1;
  let ranges = [];
  let timer = null;

  const unmark = () => {
    for (const range of ranges) { marks.found?.delete(range); marks["found-now"]?.delete(range); }
    ranges = [];
    pre.querySelector(".found-now")?.classList.remove("found-now");
  };
  const say = () => {
    const isPart = pane.start !== 0 || !pane.isWhole();
    const none = isPart ? "not in what is shown" : "nothing found";
    const word = field.value ? (hits.length ? `${now + 1} of ${hits.length.toLocaleString("en")}` : none) : "";
    if (said.textContent !== word) said.textContent = word;
    everywhere.hidden = !field.value || !isPart;
    everywhere.textContent = `Search all ${sized(pane.end)}`;
  };
  const markNow = () => {
    const current = marks["found-now"];
    current?.clear();
    pre.querySelector(".found-now")?.classList.remove("found-now");
    const hit = hits[now];
    if (!hit) return;
    hit.line.classList.add("found-now");
    const range = rangeOf(hit.line, hit.at, hit.at + field.value.length);
    ranges.push(range);
    current?.add(range);
  };
  const look = () => {
    const before = hits[now];
    unmark();
    hits = [];
    const wanted = field.value.toLowerCase();
    if (wanted) {
      for (const line of pre.children) {
        const text = line.textContent.toLowerCase();
        for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) hits.push({ line, at });
      }
      for (const { line, at } of hits.slice(-MARKED)) {
        const range = rangeOf(line, at, at + wanted.length);
        ranges.push(range);
        marks.found?.add(range);
      }
    }
    now = before ? hits.findIndex(({ line, at }) => line === before.line && at === before.at) : -1;
    if (now < 0 && hits.length) now = 0;
    markNow();
    say();
  };
  const go = (step) => {
    if (!hits.length) return;
    now = (now + step + hits.length) % hits.length;
    pane.follow.checked = false;
    markNow();
    say();
    const { line } = hits[now];
    unfold(line);
    pre.scrollTop = line.offsetTop - pre.offsetTop - pre.clientHeight / 2;
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { look(); if (hits.length) go(0); }, SOON); });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(timer);
    look();
    if (hits.length) go(event.shiftKey ? -1 : 1);
    else if (!everywhere.hidden) everywhere.click();
  });
  everywhere.addEventListener("click", () => pane.busy(everywhere, () => list({ search: field.value })));
  const errors = pane.part("errors");
  errors.addEventListener("click", () => pane.busy(errors, () => list({ errors: "true" })));
  section.addEventListener("disbatch:lines", () => {
    if (!field.value) return;
    clearTimeout(timer);
    timer = setTimeout(look, SOON);
  });
};
