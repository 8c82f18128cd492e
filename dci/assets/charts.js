// Charts: <figure data-chart="ADDRESS"> shows what is at the address, which is renewed while the page is seen:
// {"times": [seconds], "series": [{"label", "kind": "area|layer|line|dashes|bars", "tone", "values": [number or null]}], "unit",
// "every": seconds, "words": the same in words, "marks": [{"at": seconds, "text"}]}. All charts of a page show the same time. `data-tasks` is the address of their tasks.
"use strict";
(() => {
  const EVERY = 10_000;

  // Custom properties do not tell colours; elements that have them do.
  const colour = (figure, tone) => {
    const probe = figure.appendChild(document.createElement("span"));
    probe.className = `tone-${tone} hidden`;
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  };
  const lighter = (color) => color.replace(/^rgb\((.*)\)$/, "rgba($1, 0.22)");
  // What is below is not to be seen through a layer.
  const onGround = (figure, color) => {
    const parts = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);
    const ground = parts(getComputedStyle(figure.closest(".panel") ?? document.body).backgroundColor);
    return `rgb(${parts(color).map((part, index) => Math.round(part * 0.55 + ground[index] * 0.45)).join(", ")})`;
  };
  const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

  // A line begins with two points; one that has no neighbour would not be seen.
  const alone = (plot, at) => {
    const values = plot.data[at];
    const is = (index) => values[index] !== null && values[index] !== undefined;
    return values.flatMap((_, index) => (is(index) && !is(index - 1) && !is(index + 1) ? [index] : []));
  };

  // Each layer lies upon those that come after it.
  const heights = (all) => all.reduceRight(({ drawn, below }, { kind, values }) => {
    if (kind !== "layer") return { drawn: [values, ...drawn], below };
    const upon = values.map((value, index) => (value === null ? null : value + (below[index] ?? 0)));
    return { drawn: [upon, ...drawn], below: upon };
  }, { drawn: [], below: [] }).drawn;

  const series = (figure, { label, kind = "line", tone = "accent" }, now) => {
    const stroke = colour(figure, tone);
    // As it is, however high it lies.
    const value = (_, __, which, index) => {
      const own = index === null ? null : now().series[which - 1]?.values[index];
      return own === null || own === undefined ? "–" : number.format(own);
    };
    const common = { label, value, stroke, points: { show: true, size: 5, fill: stroke, filter: alone } };
    if (kind === "bars") return { ...common, points: { show: false }, fill: stroke, width: 0, paths: uPlot.paths.bars({ size: [0.7, 24] }) };
    if (kind === "layer") return { ...common, fill: onGround(figure, stroke), width: 0 };
    if (kind === "area") return { ...common, fill: lighter(stroke), width: 1.5 };
    return { ...common, width: 1.5, dash: kind === "dashes" ? [6, 4] : undefined };
  };

  // The reader's zone, in which all times are told.
  const zone = () => window.disbatch.zone();
  const clock = (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone());

  // 24 hours a day, and the date where one begins.
  const two = (part) => String(part).padStart(2, "0");
  const moments = (_, ticks) => ticks.map((tick) => {
    const at = clock(tick);
    const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
    return time === "00:00" ? `${two(at.getMonth() + 1)}-${two(at.getDate())}` : time;
  });

  // Tasks are found by when they were made. To the second, as they are shown.
  const tasksOf = ({ dataset }, from, to) => {
    const address = new URL(dataset.tasks, location.href);
    const text = (seconds) => new Date(Math.floor(seconds) * 1000).toISOString().replace(".000", "");
    address.searchParams.set(".created_since", text(from));
    if (to) address.searchParams.set(".created_until", text(to));
    return address.href;
  };
  // A click is for a step, and a drag for what it covers.
  const leadOn = (figure, data) => ({
    init: [(plot) => plot.over.addEventListener("click", () => {
      const { times } = data();
      const from = times[plot.cursor.idx];
      if (from !== undefined && !plot.select.width) location.assign(tasksOf(figure, from, from + (times[1] - times[0])));
    })],
    setSelect: [(plot) => {
      const { left, width } = plot.select;
      if (width > 0) location.assign(tasksOf(figure, plot.posToVal(left, "x"), plot.posToVal(left + width, "x")));
    }],
  });

  // What was changed meanwhile: lines in the chart, and a list below all charts of the page.
  const drawMarks = (figure, data) => (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour(figure, "busy");
    ctx.setLineDash([4, 4]);
    for (const { at } of data().marks ?? []) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };
  const listMarks = (list, marks) => list.replaceChildren(...marks.map(({ at, text }) => {
    const item = document.createElement("li");
    const time = item.appendChild(document.createElement("time"));
    time.dateTime = new Date(at * 1000).toISOString();
    time.textContent = time.dateTime.replace("T", " ").replace(".000Z", " UTC");
    item.append(` ${text}`);
    return item;
  }));

  const options = (figure, data, plot, now) => {
    const soft = colour(figure, "soft");
    const axis = { stroke: soft, grid: { stroke: lighter(soft), width: 1 }, ticks: { stroke: lighter(soft), width: 1 }, font: "12px system-ui, sans-serif" };
    return {
      width: Math.max(plot.clientWidth, 200),
      height: 224,
      cursor: {
        drag: { x: Boolean(figure.dataset.tasks), y: false, setScale: false, dist: 4 },
        sync: { key: "charts", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      },
      hooks: { ...(figure.dataset.tasks ? leadOn(figure, now) : {}), draw: [drawMarks(figure, now)] },
      scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] } },
      tzDate: clock,
      axes: [{ ...axis, values: moments }, { ...axis, size: 56, label: data.unit, labelFont: axis.font, labelSize: 18, values: (_, ticks) => ticks.map((tick) => number.format(tick)) }],
      series: [{ label: `Time (${zone()})`, value: "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...data.series.map((one) => series(figure, one, now))],
    };
  };

  const show = (figure) => {
    const plot = figure.querySelector(".plot");
    let chart = null;
    let data = null;
    let shape = "";
    let every = EVERY;
    let last = 0;
    let asking = null;
    const draw = () => {
      if (!data) return;
      const values = [data.times, ...heights(data.series)];
      const now = JSON.stringify([data.unit, data.series.map(({ label, kind, tone }) => [label, kind, tone])]);
      if (chart && now === shape) return chart.setData(values);
      shape = now;
      chart?.destroy();
      plot.replaceChildren();
      chart = new uPlot(options(figure, data, plot, () => data), values, plot);
    };
    const load = async () => {
      // What was asked for before is not to come later and take its place.
      asking?.abort();
      asking = new AbortController();
      const { signal } = asking;
      const answer = await window.disbatch.request(figure.dataset.chart, { headers: { Accept: "application/json" }, signal });
      if (!answer.ok) throw new Error(`${answer.status}`);
      const fresh = await answer.json();
      every = Number(fresh.every) * 1000 || EVERY;
      const words = figure.querySelector("[data-is=words]");
      if (words && fresh.words) words.textContent = fresh.words;
      // An empty picture says less than what is there.
      if (!fresh.times.length) return;
      data = fresh;
      draw();
      const section = figure.parentElement.parentElement;
      const list = section.querySelector("ul[data-is=marks]");
      if (list) listMarks(list, data.marks ?? []);
      const tasks = section.querySelector("a[data-is=tasks]");
      if (tasks) tasks.href = tasksOf(figure, data.times[0]);
    };
    const again = () => { last = Date.now(); load().catch(() => { /* What is shown stays. */ }); };
    const review = () => { if (!document.hidden && figure.isConnected && Date.now() - last >= every) again(); };
    again();
    setInterval(review, 1000);
    document.addEventListener("visibilitychange", review);
    for (const name of ["theme", "zone"]) document.addEventListener(`disbatch:${name}`, () => { shape = ""; draw(); });
    figure.addEventListener("disbatch:chart", again);
    new ResizeObserver(() => chart?.setSize({ width: Math.max(plot.clientWidth, 200), height: 224 })).observe(plot);
  };
  document.querySelectorAll("figure[data-chart]").forEach(show);

  // <a data-span="ADDRESS"> in a figure: another stretch of time for all of them, without leaving the page.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("figure[data-chart] a[data-span]");
    // With a key held it is for another tab or window.
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    document.querySelectorAll("figure[data-chart]").forEach((figure) => {
      for (const other of figure.querySelectorAll("a[data-span]")) {
        other.removeAttribute("aria-current");
        if (other.href !== link.href) continue;
        other.setAttribute("aria-current", "true");
        figure.dataset.chart = other.dataset.span;
        figure.dispatchEvent(new CustomEvent("disbatch:chart"));
      }
    });
    history.replaceState(null, "", link.href);
  });
})();
