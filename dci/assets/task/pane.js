// A stream of output on the page: an element for each line, and never more of them than a browser bears.

const LINES = 10_000;
const CHARACTERS = 4_000_000;
const LONGEST_LINE = 10_000; // Longer ones are broken.
const AT_ONCE = 256 * 1024; // So many bytes are fetched of what is not shown.

const newLine = () => {
  const line = document.createElement("div");
  line.characters = 0;
  return line;
};
const charactersOf = (lines) => lines.reduce((sum, line) => sum + line.characters, 0);
const put = (line, text, classes) => {
  line.characters += text.length;
  if (!classes) return line.append(text);
  const span = document.createElement("span");
  span.className = classes;
  span.textContent = text;
  line.append(span);
};

/** Adds text to `lines`, of which the last one may go on. */
const writeLines = (lines, ansi, text, state) => {
  for (const piece of ansi.read(text)) {
    if (piece === "\n") {
      if (state.ended) lines.push(newLine());
      Object.assign(state, { open: null, ended: true, back: false });
      continue;
    }
    if (piece === "\r") { state.back = true; continue; }
    let [words, classes] = piece;
    if (!state.open) { state.open = newLine(); lines.push(state.open); }
    state.ended = false;
    if (state.back) { state.open.replaceChildren(); state.open.characters = 0; state.back = false; }
    while (state.open.characters + words.length > LONGEST_LINE) {
      const room = LONGEST_LINE - state.open.characters;
      put(state.open, words.slice(0, room), classes);
      words = words.slice(room);
      state.open = newLine();
      lines.push(state.open);
    }
    put(state.open, words, classes);
  }
};

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
    this.section = section;
    this.pre = section.querySelector("pre");
    this.empty = part("empty");
    this.before = part("before");
    this.leftOut = part("left-out");
    this.earlier = part("earlier");
    this.size = part("size");
    this.follow = part("follow");
    this.follows = part("follows");
    this.take(section);
    this.earlier.addEventListener("click", () => this.loadEarlier());
    part("wrap").addEventListener("change", ({ target }) => section.classList.toggle("nowrap", !target.checked));
    this.follow.addEventListener("change", () => { if (this.follow.checked) this.toEnd(); });
    this.pre.addEventListener("scroll", () => { this.follow.checked = this.isAtEnd(); }, { passive: true });
  }

  /** Shows what a page has that the server has made, and nothing else. */
  take(section) {
    const pre = section.querySelector("pre");
    const { raw } = pre.dataset;
    const text = raw === undefined ? pre.textContent : JSON.parse(raw);
    this.clear();
    this.pre.removeAttribute("data-raw");
    this.start = Number(section.dataset.start); // Of the first byte that is shown; null when that is not known any more.
    this.end = Number(section.dataset.end);
    this.write(text);
  }
  clear() {
    this.ansi = new Ansi();
    this.state = { open: null, ended: true, back: false };
    this.characters = 0;
    this.waiting = "";
    this.start = 0;
    this.end = 0;
    this.pre.replaceChildren();
    this.show();
  }
  isAtEnd() { return this.pre.scrollTop + this.pre.clientHeight >= this.pre.scrollHeight - 8; }
  toEnd() { this.pre.scrollTop = this.pre.scrollHeight; }

  /** Takes what comes, and shows it with the next picture that the browser makes. */
  append(text) {
    this.waiting += text;
    if (this.waiting.length > CHARACTERS) {
      // What would be gone again at once is not even made.
      this.waiting = this.waiting.slice(-CHARACTERS);
      this.pre.replaceChildren();
      Object.assign(this.state, { open: null, ended: true, back: false });
      this.characters = 0;
      this.start = null;
    }
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const fresh = this.waiting;
      this.waiting = "";
      this.write(fresh);
    });
  }

  write(text) {
    const lines = [];
    const open = this.state.open;
    const before = open?.characters ?? 0;
    writeLines(lines, this.ansi, text, this.state);
    if (lines.length > LINES) {
      lines.splice(0, lines.length - LINES);
      this.pre.replaceChildren();
      this.characters = 0;
      this.start = null;
    } else this.characters += (open?.characters ?? 0) - before;
    this.pre.append(...lines);
    this.characters += charactersOf(lines);
    while (this.pre.childElementCount > LINES || (this.characters > CHARACTERS && this.pre.childElementCount > 1)) {
      this.characters -= this.pre.firstElementChild.characters;
      this.pre.firstElementChild.remove();
      this.start = null;
    }
    this.show();
    if (this.follow.checked) this.toEnd();
    this.section.dispatchEvent(new CustomEvent("disbatch:lines"));
  }

  /** Says what is shown and what is not. */
  show() {
    const some = this.pre.childElementCount > 0;
    this.pre.hidden = !some;
    this.empty.hidden = some;
    this.before.hidden = this.start === 0 || !some;
    this.earlier.hidden = !this.start || this.pre.childElementCount >= LINES || this.characters >= CHARACTERS;
    if (!this.before.hidden) {
      const all = this.leftOut.querySelector("a");
      const words = this.start === null ? "Only the newest lines are kept here. See " : `This is the end, after ${sized(this.start)}. See `;
      this.leftOut.replaceChildren(words, all ?? "", ".");
    }
    this.size.textContent = this.start !== null && this.end > this.start ? sized(this.end - this.start) : "";
  }

  async fetch(range) {
    const answer = await window.disbatch.request(this.section.dataset.address, { headers: { Range: `bytes=${range}` } });
    const place = /^bytes (\d+)-(\d+)/.exec(answer.headers.get("content-range") ?? "");
    if (answer.status !== 206 || !place) {
      // It may be very long.
      answer.body?.cancel();
      return null;
    }
    return { bytes: new Uint8Array(await answer.arrayBuffer()), first: Number(place[1]), last: Number(place[2]) };
  }

  /** What comes before the first line that is shown. */
  async loadEarlier() {
    this.earlier.disabled = true;
    try {
      const found = await this.fetch(`${Math.max(0, this.start - AT_ONCE)}-${this.start - 1}`);
      if (!found || found.last + 1 !== this.start) { this.start = null; return; }
      const { text, from } = textOf(found.bytes, found.first > 0);
      const lines = [];
      writeLines(lines, new Ansi(), text, { open: null, ended: true, back: false });
      const height = this.pre.scrollHeight - this.pre.scrollTop;
      this.follow.checked = false;
      this.pre.prepend(...lines);
      this.characters += charactersOf(lines);
      this.start = found.first + from;
      this.pre.scrollTop = this.pre.scrollHeight - height;
      this.section.dispatchEvent(new CustomEvent("disbatch:lines"));
    } catch {
      window.disbatch.toast("The server cannot be reached.", { tone: "bad" });
    } finally {
      this.earlier.disabled = false;
      this.show();
    }
  }
}
