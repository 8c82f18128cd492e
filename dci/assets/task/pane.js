// A stream of output on the page: an element for each line, and never more of them than a browser bears.

const LINES = 10_000;
const CHARACTERS = 4_000_000;
const AT_ONCE = 256 * 1024; // So many bytes are fetched of what is not shown.
const AT_THE_END = 64 * 1024; // And so many of the end.
const COUNTED = 32 * 1024 * 1024; // Lines before what is shown are counted without being asked for up to so many bytes.

/** Bytes as text, from the first line that is whole if there was something before; and how many bytes were left out. */
const textOf = (bytes, isCut) => {
  let from = 0;
  if (isCut) {
    const end = bytes.indexOf(10);
    if (end >= 0 && end + 1 < bytes.length) from = end + 1;
    else while (from < 3 && (bytes[from] & 0xc0) === 0x80) from += 1;
  }
  return { text: new TextDecoder().decode(bytes.subarray(from)), from };
};

const AT_MOST = LINES / 2; // So many lines are shown of what is fetched, so that none gives way to another of the same piece.
/** Where the first lines end, or the last ones begin. */
const endOfFirst = (bytes) => {
  let at = -1;
  for (let line = 0; line < AT_MOST; line += 1) {
    at = bytes.indexOf(10, at + 1);
    if (at < 0) return bytes.length;
  }
  return at + 1;
};
const startOfLast = (bytes) => {
  let at = bytes.length - (bytes.at(-1) === 10 ? 1 : 0);
  for (let line = 0; line < AT_MOST; line += 1) {
    at = bytes.lastIndexOf(10, at - 1);
    if (at < 0) return 0;
    if (at === 0) return line + 1 < AT_MOST ? 0 : 1;
  }
  return at + 1;
};

const sized = (bytes) => {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let size = bytes;
  let unit = 0;
  while (size >= 1024 && unit + 1 < units.length) { size /= 1024; unit += 1; }
  return `${unit && size < 10 ? size.toFixed(1) : Math.floor(size)} ${units[unit]}`;
};

class Pane {
  constructor(section) {
    const part = (name) => section.querySelector(`[data-is="${name}"]`);
    Object.assign(this, { section, part, pre: section.querySelector("pre"), follow: part("follow"), follows: part("follows") });
    this.letter = section.dataset.stream === "stderr" ? "E" : "L"; // Of addresses of lines.
    this.take(section);
    const does = { earlier: () => this.loadEarlier(), later: () => this.loadLater(), first: () => this.toStart(), last: () => this.toLast() };
    for (const [name, act] of Object.entries(does)) part(name).addEventListener("click", ({ currentTarget }) => this.busy(currentTarget, act));
    dress(section);
    this.follow.addEventListener("change", () => { if (this.follow.checked) this.busy(this.follow, () => this.isWhole() ? this.toEnd() : this.toLast()); });
    this.pre.addEventListener("scroll", () => { this.follow.checked = this.isWhole() && this.isAtEnd(); }, { passive: true });
    const toggle = (event) => {
      const heading = event.target.closest(".step");
      if (!heading || (event.key ?? "Enter") !== "Enter") return;
      this.follow.checked = false;
      fold(heading, heading.ariaExpanded === "true");
    };
    for (const name of ["click", "keydown"]) this.pre.addEventListener(name, toggle);
    // The number of a line leads to its address.
    this.pre.addEventListener("click", (event) => {
      const line = event.target.closest("div");
      if (!line || line.matches(".step") || !this.pre.classList.contains("numbered") || event.clientX > line.getBoundingClientRect().left + line.clientLeft + parseFloat(getComputedStyle(line).paddingLeft)) return;
      const lines = [...this.pre.children];
      const number = this.number + countOf(lines.slice(0, lines.indexOf(line) + 1)) - 1;
      history.replaceState(history.state, "", `#${this.letter}${number}`);
      this.follow.checked = false;
      this.mark(number);
    });
  }

  /** Does what a button is for, which may take a while. */
  async busy(button, act) {
    button.disabled = true;
    try { await act(); } catch { window.disbatch.toast("The output cannot be read at the moment.", { tone: "bad" }); }
    button.disabled = false;
    this.show();
  }

  /** Shows what a page has that the server has made, and nothing else. */
  take(section) {
    const pre = section.querySelector("pre");
    const { raw } = pre.dataset;
    const text = raw === undefined ? pre.textContent : JSON.parse(raw);
    this.clear();
    this.pieces = piecesOf(section);
    this.pre.removeAttribute("data-raw");
    this.begin(Number(section.dataset.start), Number(section.dataset.end), Number(section.dataset.end));
    this.write(text, this.start);
    this.foldGood();
    this.count();
  }
  /** It has ended, so it is known when its pieces came. What is shown stays. */
  takeTimes(section) {
    if (this.start === 0 && Number(section.dataset.start) === 0 && this.follow.checked) { this.take(section); return; }
    this.pieces = piecesOf(section);
    this.show();
  }
  /** What is asked for is that of the task, and not of an earlier attempt any more. */
  ofTask() {
    for (const name of ["address", "lines"]) this.section.dataset[name] = this.section.dataset[name].split("?")[0];
    for (const link of this.part("whole").querySelectorAll("a")) link.href = this.section.dataset.address;
  }
  clear() {
    this.pieces = [];
    this.begin(0, 0, 0);
    this.show();
  }
  /** Nothing is shown, and what comes is from `start` to `stop`, of `end` bytes that there are. `start` is null where it is not known any more. */
  begin(start, stop, end, number = start === 0 ? 1 : null) {
    Object.assign(this, { start, stop, end, number, ansi: new Ansi(), state: { open: null, ended: true, back: false }, characters: 0, waiting: "", from: null });
    this.pre.replaceChildren();
  }
  /** Whether what is shown ends where the output does. */
  isWhole() { return this.stop === this.end; }
  isAtEnd() { return this.pre.scrollTop + this.pre.clientHeight >= this.pre.scrollHeight - 8; }
  toEnd() { this.pre.scrollTop = this.pre.scrollHeight; }

  /** Takes what comes, and shows it with the next picture that the browser makes. It is of the bytes from `from` to `to`. */
  append(text, from, to) {
    const goesOn = this.isWhole();
    this.end = Math.max(this.end, to);
    if (!goesOn) { this.show(); return; }
    if (to <= this.stop) return; // It is there.
    const at = Math.max(from, this.stop);
    if (from < this.stop) text = new TextDecoder().decode(new TextEncoder().encode(text).subarray(this.stop - from));
    this.stop = this.end;
    this.waiting += text;
    if (this.waiting.length > CHARACTERS) {
      // What would be gone again at once is not even made.
      this.waiting = this.waiting.slice(-CHARACTERS);
      this.pre.replaceChildren();
      Object.assign(this.state, { open: null, ended: true, back: false });
      this.characters = 0;
      this.start = null;
      this.number = null;
      this.from = to;
    }
    this.from ??= at;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const [fresh, at] = [this.waiting, this.from];
      this.waiting = "";
      this.from = null;
      this.write(fresh, at);
    });
  }

  /** Adds text, whose first byte is at `at`. */
  write(text, at) {
    const lines = [];
    const open = this.state.open;
    const before = open?.characters ?? 0;
    writeParts(lines, this.ansi, text, this.state, at, this);
    if (lines.length > LINES) {
      this.left([...this.pre.children, ...lines.splice(0, lines.length - LINES)]);
      this.pre.replaceChildren();
      this.characters = 0;
    } else this.characters += (open?.characters ?? 0) - before;
    this.pre.append(...lines);
    this.characters += charactersOf(lines);
    while (this.pre.childElementCount > LINES || (this.characters > CHARACTERS && this.pre.childElementCount > 1)) {
      this.characters -= this.pre.firstElementChild.characters;
      this.left([this.pre.firstElementChild]);
      this.pre.firstElementChild.remove();
    }
    this.show();
    if (this.follow.checked) this.toEnd();
    this.section.dispatchEvent(new CustomEvent("disbatch:lines"));
  }
  /** These lines are shown no more. */
  left(lines) {
    if (!lines.length) return;
    this.start = null;
    if (this.number !== null) this.number += countOf(lines);
  }

  /** Says what is shown and what is not. */
  show() {
    const { pre, part, start, stop, end, number } = this;
    const some = pre.childElementCount > 0;
    pre.hidden = !some;
    pre.classList.toggle("numbered", number !== null);
    pre.style.setProperty("--before", String((number ?? 1) - 1));
    for (const name of ["tools", "whole"]) part(name).hidden = !some && !end;
    part("timed").hidden = !this.pieces.length;
    pre.classList.toggle("with-times", this.pieces.length > 0);
    part("empty").hidden = some || end > 0;
    part("size").textContent = end > 0 ? sized(end) : "";
    part("before").hidden = start === 0 || !some;
    part("after").hidden = stop === end || !some;
    part("earlier").hidden = start === null;
    const shown = start === null ? "" : `${sized(stop - start)} of ${sized(end)}`;
    const isEnd = stop === end;
    part("left-out").textContent = start === null ? "Only the newest lines are kept here." : isEnd ? `Last ${shown}.` : `${shown}, after the first ${sized(start)}.`;
    part("left-after").textContent = `${sized(end - stop)} follow.`;
  }

  async fetch(range) {
    const answer = await window.disbatch.request(this.section.dataset.address, { headers: { Range: `bytes=${range}` } });
    const place = /^bytes (\d+)-(\d+)\/(\d+|\*)/.exec(answer.headers.get("content-range") ?? "");
    if (answer.status !== 206 || !place) {
      // It may be very long.
      answer.body?.cancel();
      return null;
    }
    const [first, last] = [Number(place[1]), Number(place[2])];
    this.end = Math.max(this.end, last + 1, place[3] === "*" ? 0 : Number(place[3]));
    return { bytes: new Uint8Array(await answer.arrayBuffer()), first, last };
  }
  /** The whole lines from a byte on, not too many of them. */
  async fetchLines(from) {
    const found = await this.fetch(`${from}-${from + AT_ONCE - 1}`);
    if (!found) return null;
    const cut = found.last + 1 >= this.end ? -1 : found.bytes.lastIndexOf(10);
    const bytes = cut < 0 ? found.bytes : found.bytes.subarray(0, cut + 1);
    return { first: found.first, bytes: bytes.subarray(0, endOfFirst(bytes)) };
  }
  /** Asks the server for lines of all of the output. */
  async ask(query) {
    const { lines } = this.section.dataset;
    const answer = await window.disbatch.request(`${lines}${lines.includes("?") ? "&" : "?"}${new URLSearchParams(query)}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(answer.statusText);
    return answer.json();
  }
  /** The same up to what is asked for, or the end. */
  async askOn(query, isThere) {
    let answer = await this.ask(query);
    while (!answer.ended && !isThere(answer)) answer = await this.ask({ ...query, from: answer.position, number: answer.number });
    return answer;
  }
  /** Finds out which numbers the lines have. */
  async count() {
    const { start } = this;
    if (this.number !== null || !start || start > COUNTED) return;
    try {
      const answer = await this.askOn({ offset: start }, ({ position }) => position >= start);
      if (this.start === start && answer.exact && answer.position === start) { this.number = answer.number; this.show(); }
    } catch { /* They have none then. */ }
  }

  /** Shows what begins at a byte, which is the first one of the line with this number, if that is known. */
  async showFrom(from, number = null) {
    const found = await this.fetchLines(from);
    if (!found) return;
    const { first, bytes } = found;
    this.follow.checked = false;
    this.begin(first, first + bytes.length, this.end, number ?? (first === 0 ? 1 : null));
    this.write(new TextDecoder().decode(bytes), first);
    this.pre.scrollTop = 0;
    this.count();
  }
  toStart() { return this.showFrom(0, 1); }
  async toLast() {
    const found = await this.fetch(`-${AT_THE_END}`);
    if (!found) return;
    const { text, from } = textOf(found.bytes, found.first > 0); // Not so many bytes that their lines were too many.
    this.begin(found.first + from, found.last + 1, found.last + 1);
    this.follow.checked = true;
    this.write(text, this.start);
    this.count();
  }
  /** What comes after the last line that is shown. */
  async loadLater() {
    const isMuch = this.pre.childElementCount + AT_MOST > LINES || this.characters > CHARACTERS / 2;
    const number = this.number === null ? null : this.number + countOf([...this.pre.children]);
    if (isMuch) return this.showFrom(this.stop, number);
    const found = await this.fetchLines(this.stop);
    if (!found || found.first !== this.stop) return;
    this.follow.checked = false;
    this.stop += found.bytes.length;
    this.write(new TextDecoder().decode(found.bytes), found.first);
  }
  /** What comes before the first line that is shown. */
  async loadEarlier() {
    const { start } = this;
    const found = await this.fetch(`${Math.max(0, start - AT_ONCE)}-${start - 1}`);
    if (this.start !== start) return;
    if (!found || found.last + 1 !== start) { this.start = null; return; }
    const skipped = startOfLast(found.bytes);
    found.first += skipped;
    const { text, from } = textOf(found.bytes.subarray(skipped), found.first > 0 && skipped === 0);
    const lines = [];
    writeParts(lines, new Ansi(), text, { open: null, ended: true, back: false }, found.first + from, this);
    // The first line has its time also where its piece begins before it.
    const [last, first] = [lines.findLast((line) => line.querySelector(".time")), this.pre.firstElementChild].map((line) => line?.querySelector(".time"));
    if (first && first.dataset.at === last?.dataset.at) first.remove();
    this.follow.checked = false;
    const number = this.number === null ? null : this.number - countOf(lines);
    if (this.pre.childElementCount + lines.length > LINES || this.characters + text.length > CHARACTERS) {
      // The lines after these give way.
      this.begin(found.first + from, start, this.end, number);
      this.write(text, this.start);
      this.toEnd();
      return;
    }
    const height = this.pre.scrollHeight - this.pre.scrollTop;
    this.pre.prepend(...lines);
    this.characters += charactersOf(lines);
    Object.assign(this, { start: found.first + from, number: found.first + from === 0 ? 1 : number });
    this.show();
    this.pre.scrollTop = this.pre.scrollHeight - height;
    this.section.dispatchEvent(new CustomEvent("disbatch:lines"));
  }

  /** Folds steps that have done what they should, if another one has not. */
  foldGood() {
    const headings = [...this.pre.querySelectorAll(".step")];
    const isGood = ({ textContent }) => / succeeded(,|$)/.test(textContent);
    if (headings.every(isGood)) return;
    for (const heading of headings.filter(isGood)) fold(heading, true);
    if (this.follow.checked) this.toEnd();
  }
  /** Says at their headings how the steps are by now. Of one that had not been heard of when its output came, the heading is put where that begins. */
  showSteps() {
    const from = this.pre.firstElementChild?.at;
    for (const step of stepsIn(this.section.dataset.stream)) {
      const { at, title, about } = step;
      const heading = this.pre.querySelector(`.step[data-at="${at}"]`);
      if (heading) heading.textContent = `${title}: ${about}`;
      else if (from <= at) [...this.pre.children].find((line) => line.at >= at)?.before(headingOf(step));
    }
  }

  /** Marks the line with this number, if it is shown. */
  mark(number) {
    this.pre.querySelector(".line-now")?.classList.remove("line-now");
    const line = this.number === null ? null : [...this.pre.children].filter(isLine)[number - this.number];
    if (!line) return false;
    unfold(line);
    line.classList.add("line-now");
    return true;
  }
  /** Goes to the line with this number; `offset` is where it begins, if that is known. */
  async toLine(number, offset = null) {
    if (!this.mark(number)) {
      const place = offset ?? (await this.askOn({ line: number }, ({ lines }) => lines.length > 0)).lines[0]?.offset;
      if (place === undefined) { window.disbatch.toast(`There is no line ${number}.`, { tone: "info" }); return; }
      await this.showFrom(place, number);
      this.mark(number);
    }
    this.follow.checked = false;
    const line = this.pre.querySelector(".line-now");
    if (line) this.pre.scrollTop = line.offsetTop - this.pre.offsetTop - this.pre.clientHeight / 3;
    this.section.scrollIntoView({ block: "nearest" });
  }
}
