// Lines of output, made of text, with the headings of steps and the times of pieces.

const LONGEST_LINE = 10_000; // Longer ones are broken.

const newLine = (state, goesOn = false) => {
  const line = document.createElement("div");
  if (goesOn) line.className = "goes-on"; // The line before it, which was broken.
  line.characters = 0;
  if (state.time) line.append(timeOf(state.time));
  state.time = null;
  return line;
};
const isLine = (element) => !element.matches(".goes-on, .step");
const countOf = (lines) => lines.reduce((sum, line) => sum + isLine(line), 0);
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
      if (state.ended) lines.push(newLine(state));
      Object.assign(state, { open: null, ended: true, back: false });
      continue;
    }
    if (piece === "\r") { state.back = true; continue; }
    let [words, classes] = piece;
    if (!state.open) { state.open = newLine(state); lines.push(state.open); }
    state.ended = false;
    if (state.back) { state.open.replaceChildren(...state.open.querySelectorAll(".time, .hidden")); state.open.characters = 0; state.back = false; }
    while (state.open.characters + words.length > LONGEST_LINE) {
      const room = LONGEST_LINE - state.open.characters;
      put(state.open, words.slice(0, room), classes);
      words = words.slice(room);
      state.open = newLine(state, true);
      lines.push(state.open);
    }
    put(state.open, words, classes);
  }
};

// The output of each step is below a heading, which folds it. Where they begin is in the table of steps.

/** The steps that have output of their own in a stream, in their order: where that begins, and what the heading says. Those of an earlier attempt are not known. */
const stepsIn = (stream) => {
  if (logs.dataset.fixed !== undefined) return [];
  const rows = [...document.querySelectorAll("#task-steps [data-step]")].filter(({ dataset }) => dataset[stream] !== "");
  const steps = rows.map(({ dataset }) => ({ at: Number(dataset[stream]), title: dataset.step, about: dataset.about }));
  return steps.filter(({ at }, number) => at !== steps[number + 1]?.at);
};
const headingOf = ({ at, title, about }) => {
  const heading = document.createElement("div");
  heading.className = "step";
  heading.characters = 0;
  heading.dataset.at = heading.at = at;
  Object.assign(heading, { role: "button", tabIndex: 0, ariaExpanded: "true", textContent: `${title}: ${about}` });
  return heading;
};
const fold = (heading, isFolded) => {
  heading.ariaExpanded = String(!isFolded);
  for (let line = heading.nextElementSibling; line && !line.matches(".step"); line = line.nextElementSibling) line.hidden = isFolded;
};
const unfold = (line) => {
  let heading = line;
  while (heading && !heading.matches(".step")) heading = heading.previousElementSibling;
  if (heading) fold(heading, false);
};
/** As `writeLines`, of bytes of which the first one is at `at`: each line knows where it begins. */
const writePlaced = (lines, ansi, bytes, state, at) => {
  for (let from = 0, to; from < bytes.length; from = to) {
    to = bytes.indexOf(10, from) + 1 || bytes.length;
    const before = lines.length;
    writeLines(lines, ansi, new TextDecoder().decode(bytes.subarray(from, to)), state);
    for (const line of lines.slice(before)) line.at = at + from;
  }
};
/** The same of text, with the headings of the steps and the times of the pieces that begin in it. */
const writeParts = (lines, ansi, text, state, at, { section, pieces }) => {
  const hasSteps = Boolean(document.querySelector("#task-steps table"));
  if (at === null || !(hasSteps || pieces.length)) return writeLines(lines, ansi, text, state);
  const steps = stepsIn(section.dataset.stream);
  if (state.time === undefined) state.time = pieces.findLast(({ from }) => from <= at)?.time;
  let bytes = new TextEncoder().encode(text);
  const end = at + bytes.length;
  const parts = [...steps.map((step) => ({ from: step.at, step })), ...pieces].filter(({ from }) => from >= at && from < end);
  for (const { from, step, time } of parts.sort((one, other) => one.from - other.from)) {
    let cut = Math.max(0, from - at);
    while ((bytes[cut] & 0xc0) === 0x80) cut += 1; // A piece may end within a character.
    writePlaced(lines, ansi, bytes.subarray(0, cut), state, at);
    bytes = bytes.subarray(cut);
    at += cut;
    if (!step) { state.time = time; continue; }
    Object.assign(state, { open: null, ended: true, back: false });
    lines.push(headingOf(step));
  }
  writePlaced(lines, ansi, bytes, state, at);
};
