// The page of a task. The files of this folder are served as one module, in the order in which `assets.rs` names them.
//
// What programs write for terminals: colours and emphasis become classes of elements, everything else that is told by escape
// sequences and control characters is left out. All text stays text.

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const EMPHASIS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const NO_EMPHASIS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"] };
const PLAIN = Object.freeze({ front: null, back: null, bold: false, dim: false, italic: false, underline: false, inverse: false, strike: false });

// A control sequence, a command with text, another sequence; a line break; any other control character.
const SPECIAL = /\x1b(?:\[([ -?]*)([@-~])|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\r?\n|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
// One that may go on with what comes next.
const OPEN = /(?:\x1b(?:\[[ -?]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)?|\r)$/;
const LONGEST_SEQUENCE = 4096;

/** Of red, green and blue: which of the eight colours comes next to it. */
const nearest = (red, green, blue) => {
  const most = Math.max(red, green, blue);
  const least = Math.min(red, green, blue);
  if (most - least < 48) return most < 100 ? "black" : "white";
  const middle = (most + least) / 2;
  return COLOURS[(red > middle ? 1 : 0) + (green > middle ? 2 : 0) + (blue > middle ? 4 : 0)];
};
/** One of the 256 colours. */
const ofTable = (number) => {
  if (number < 16) return COLOURS[number % 8];
  if (number > 231) return number < 244 ? "black" : "white";
  const level = (step) => [0, 95, 135, 175, 215, 255][step];
  const cube = number - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
};

/** Reads text piece by piece; a sequence may begin in one piece and end in the next. */
class Ansi {
  #rest = "";
  #style = PLAIN;
  #classes = "";

  /** What `text` comes to: `[text, classes]`, `"\n"` where a line ends, `"\r"` where it begins anew. */
  *read(text) {
    let all = this.#rest + text;
    this.#rest = "";
    const open = OPEN.exec(all)?.[0] ?? "";
    if (open && open.length <= LONGEST_SEQUENCE) {
      this.#rest = open;
      all = all.slice(0, all.length - open.length);
    }
    let at = 0;
    for (const found of all.matchAll(SPECIAL)) {
      if (found.index > at) yield [all.slice(at, found.index), this.#classes];
      const [sequence, parameters, final] = found;
      at = found.index + sequence.length;
      if (sequence.endsWith("\n")) yield "\n";
      else if (sequence === "\r") yield "\r";
      else if (final === "m") this.#set(parameters);
    }
    if (at < all.length) yield [all.slice(at), this.#classes];
  }

  #set(parameters) {
    if (!/^[\d;:]*$/.test(parameters)) return;
    const numbers = parameters.split(/[;:]/).map(Number);
    const style = { ...this.#style };
    for (let at = 0; at < numbers.length; at += 1) {
      const number = numbers[at];
      if (number === 38 || number === 48) {
        const [kind, ...values] = numbers.slice(at + 1);
        style[number === 38 ? "front" : "back"] = kind === 5 ? ofTable(values[0] ?? 0) : kind === 2 ? nearest(...[0, 1, 2].map((i) => values[i] ?? 0)) : null;
        at += kind === 5 ? 2 : kind === 2 ? 4 : 1;
      } else if (number === 0) Object.assign(style, PLAIN);
      else if (EMPHASIS[number]) style[EMPHASIS[number]] = true;
      else if (NO_EMPHASIS[number]) NO_EMPHASIS[number].forEach((name) => { style[name] = false; });
      else if (number === 39) style.front = null;
      else if (number === 49) style.back = null;
      else if ((number >= 30 && number < 38) || (number >= 90 && number < 98)) style.front = COLOURS[number % 10];
      else if ((number >= 40 && number < 48) || (number >= 100 && number < 108)) style.back = COLOURS[number % 10];
    }
    this.#style = style;
    const { front, back, ...emphasis } = style;
    const names = Object.keys(emphasis).filter((name) => emphasis[name]);
    if (front) names.push(front);
    if (back) names.push("back", `on-${back}`);
    this.#classes = names.map((name) => `ansi-${name}`).join(" ");
  }
}
