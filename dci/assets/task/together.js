// Both streams of a task that has ended as one, in the order in which their pieces came.

const oneStream = document.getElementById("one-stream");
const asOne = () => oneStream.querySelector('[data-is="as-one"]');

const readAll = async ({ section, end }) => {
  if (!end) return new Uint8Array();
  const answer = await window.disbatch.request(section.dataset.address);
  if (!answer.ok) throw new Error(answer.statusText);
  return new Uint8Array(await answer.arrayBuffer());
};
/** The lines of both, and how many were left out before them. */
const linesOf = (streams) => {
  const all = streams.flatMap(({ bytes, pieces, isError }) => {
    const own = { isError, ansi: new Ansi(), state: { open: null, ended: true, back: false }, decoder: new TextDecoder() };
    return pieces.map(({ from, time }, number) => ({ own, time, bytes: bytes.subarray(from, pieces[number + 1]?.from) }));
  });
  const lines = [];
  let left = 0;
  for (const { own, time, bytes } of all.sort((one, other) => one.time.at - other.time.at)) {
    const before = lines.length;
    own.state.time = time;
    writeLines(lines, own.ansi, own.decoder.decode(bytes, { stream: true }), own.state);
    if (own.isError) for (const line of lines.slice(before)) {
      const word = document.createElement("span");
      word.className = "hidden";
      word.textContent = "stderr: ";
      line.classList.add("err");
      line.prepend(word);
    }
    left += lines.splice(0, lines.length - LINES).length;
  }
  return { lines, left };
};
const showTogether = async () => {
  const section = oneStream.querySelector(".log");
  const { stdout, stderr } = panes;
  const [out, err] = await Promise.all([readAll(stdout), readAll(stderr)]);
  const { lines, left } = linesOf([{ bytes: out, pieces: stdout.pieces }, { bytes: err, pieces: stderr.pieces, isError: true }]);
  section.querySelector("pre").replaceChildren(...lines);
  section.querySelector('[data-is="left-out"]').textContent = left ? `Only the last ${LINES.toLocaleString("en")} lines are shown.` : "";
};
const showApart = () => {
  const section = oneStream.querySelector(".log");
  if (section) section.hidden = true;
  if (section) asOne().checked = false;
  logs.hidden = false;
};
const dressOneStream = () => {
  const section = oneStream.querySelector(".log");
  if (!section) return;
  dress(section);
  asOne().addEventListener("change", async ({ target }) => {
    if (!target.checked) { showApart(); return; }
    try {
      await showTogether();
      if (!target.checked) return;
      section.hidden = false;
      logs.hidden = true;
    } catch {
      showApart();
      window.disbatch.toast("The output cannot be read at the moment.", { tone: "bad" });
    }
  });
};
