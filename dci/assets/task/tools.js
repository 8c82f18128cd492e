// What every piece of output has: the times of its pieces, and tools that the browser remembers.

/** A time since the start, for people. */
const since = (time) => {
  const seconds = time / 1000;
  if (seconds < 60) return `+${seconds.toFixed(1)} s`;
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  return hours ? `+${hours} h ${minutes % 60} min` : `+${minutes} min ${Math.floor(seconds % 60)} s`;
};
/** When a piece came. Its text is the style sheet's, so that it is neither found nor copied. */
const timeOf = ({ after, at }) => {
  const time = document.createElement("span");
  time.className = "time";
  Object.assign(time.dataset, { time: since(after), at });
  return time;
};
/** The pieces that a stream came in: the byte that each is from, and when it came. */
const piecesOf = ({ dataset }) => JSON.parse(dataset.pieces ?? "[]").map(([after, from]) => ({ from, time: { after, at: Number(dataset.since) + after } }));

/** What looks the same wherever output is: its tools that the browser remembers, and what they do. */
const dress = (section) => {
  const part = (name) => section.querySelector(`[data-is="${name}"]`);
  for (const [name, look] of [["wrap", (is) => section.classList.toggle("nowrap", !is)], ["times", (is) => section.classList.toggle("timed", is)]]) {
    const box = part(name);
    box.checked = window.disbatch.memory.get(`output.${name}`) !== "no";
    look(box.checked);
    box.addEventListener("change", () => {
      window.disbatch.memory.set(`output.${name}`, box.checked ? null : "no");
      look(box.checked);
    });
  }
  const full = part("full");
  full.hidden = !document.fullscreenEnabled;
  full.addEventListener("click", async () => {
    try { await (document.fullscreenElement === section ? document.exitFullscreen() : section.requestFullscreen()); } catch { window.disbatch.toast("This browser does not let pages fill the screen here.", { tone: "info" }); }
  });
  section.addEventListener("fullscreenchange", () => { full.ariaPressed = String(document.fullscreenElement === section); });
  // In the zone that the reader has chosen by now.
  section.addEventListener("pointerover", ({ target }) => { if (target.matches(".time")) target.title = `${window.disbatch.clock(Number(target.dataset.at))} ${window.disbatch.zone()}`; });
};
