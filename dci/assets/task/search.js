// Search in what a task has written: marks what is found, and goes from one to the next with Enter.

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

const searchIn = (pane) => {
  const { section, pre } = pane;
  const field = section.querySelector('[data-is="search"]');
  const said = section.querySelector('[data-is="hits"]');
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
    const word = field.value ? (hits.length ? `${now + 1} of ${hits.length.toLocaleString("en")}` : "nothing found") : "";
    if (said.textContent !== word) said.textContent = word;
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
    pre.scrollTop = line.offsetTop - pre.offsetTop - pre.clientHeight / 2;
  };
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { look(); if (hits.length) go(0); }, SOON); });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(timer);
    go(event.shiftKey ? -1 : 1);
  });
  section.addEventListener("disbatch:lines", () => {
    if (!field.value) return;
    clearTimeout(timer);
    timer = setTimeout(look, SOON);
  });
};
