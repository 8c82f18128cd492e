// The page of a task that has not ended: shows what happens to it, from the events at data-events.
"use strict";
(() => {
  const LINES = 2000; // The page keeps so many of each stream.
  const LONGEST = 10000; // Longer lines are broken.
  const LONG_LINE = new RegExp(`.{1,${LONGEST}}`, "gs");
  const root = document.getElementById("live");
  if (!root || !window.EventSource) return;
  const find = (name) => root.querySelector(`[data-is="${name}"]`);
  const notice = find("notice");
  let attempt = null;

  class Pane {
    constructor(name) {
      this.pre = find(name);
      this.empty = find(`${name}-empty`);
      this.cut = find(`${name}-cut`);
      this.pre.hidden = true;
    }
    clear() {
      this.pre.replaceChildren();
      this.pre.hidden = true;
      this.empty.hidden = false;
      this.cut.hidden = true;
    }
    append(text) {
      const pre = this.pre;
      this.empty.hidden = true;
      pre.hidden = false;
      // Who has scrolled up is reading: leave the place as it is.
      const follow = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
      // One text node for each line, the last of which may go on.
      const pieces = text.split(/(?<=\n)/).flatMap((line) => line.match(LONG_LINE) || []);
      const last = pre.lastChild;
      if (last && !last.data.endsWith("\n") && last.data.length < LONGEST && pieces.length) {
        last.appendData(pieces.shift());
      }
      const fresh = document.createDocumentFragment();
      pieces.slice(-LINES).forEach((line) => fresh.append(document.createTextNode(line)));
      pre.append(fresh);
      while (pre.childNodes.length > LINES) {
        pre.firstChild.remove();
        this.cut.hidden = false;
      }
      if (follow) pre.scrollTop = pre.scrollHeight;
    }
  }

  const panes = { stdout: new Pane("stdout"), stderr: new Pane("stderr") };
  const events = new EventSource(root.dataset.events);
  const on = (name, act) => events.addEventListener(name, (event) => act(JSON.parse(event.data)));

  const showStatus = (task) => {
    const status = document.getElementById("status");
    status.textContent = task.word;
    status.className = `status ${task.word}`;
    document.getElementById("code").textContent = task.status ?? "";
    if (task.node !== undefined) document.getElementById("node").textContent = task.node ?? "none yet";
    if (task.mtime) document.getElementById("changed").textContent = `${task.mtime.replace("T", " ")} UTC`;
  };

  on("status", showStatus);
  on("progress", (progress) => {
    const bar = find("progress");
    bar.hidden = progress.percent === undefined;
    if (!bar.hidden) bar.value = progress.percent;
    find("message").textContent = progress.message ?? "";
  });
  on("output", (output) => {
    if (attempt !== null && attempt !== output.attempt) Object.values(panes).forEach((pane) => pane.clear());
    attempt = output.attempt;
    panes[output.stream].append(output.text);
  });
  on("end", (task) => {
    events.close();
    showStatus(task);
    notice.textContent = "";
    find("ended").hidden = false;
  });
  events.onopen = () => { notice.textContent = ""; };
  events.onerror = () => {
    notice.textContent = events.readyState === EventSource.CLOSED
      ? "The connection is lost. Load the page again to go on."
      : "The connection is lost, trying again …";
  };
})();
