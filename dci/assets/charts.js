// Charts: <figure data-chart="ADDRESS"> shows what is at the address, which is renewed while the page is seen:
// {"times": [seconds], "series": [{"label", "kind": "area|line|bars", "tone", "values": [number or null]}], "unit",
// "every": seconds, "words": the same in words}.
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
  const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

  // A line begins with two points; one that has no neighbour would not be seen.
  const alone = (plot, at) => {
    const values = plot.data[at];
    const is = (index) => values[index] !== null && values[index] !== undefined;
    return values.flatMap((_, index) => (is(index) && !is(index - 1) && !is(index + 1) ? [index] : []));
  };

  const series = (figure, { label, kind = "line", tone = "accent" }) => {
    const stroke = colour(figure, tone);
    const value = (_, at) => (at === null || at === undefined ? "–" : number.format(at));
    const common = { label, value, stroke, points: { show: true, size: 5, fill: stroke, filter: alone } };
    if (kind === "bars") return { ...common, points: { show: false }, fill: stroke, width: 0, paths: uPlot.paths.bars({ size: [0.7, 24] }) };
    if (kind === "area") return { ...common, fill: lighter(stroke), width: 1.5 };
    return { ...common, width: 1.5 };
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

  const options = (figure, data, plot) => {
    const soft = colour(figure, "soft");
    const axis = { stroke: soft, grid: { stroke: lighter(soft), width: 1 }, ticks: { stroke: lighter(soft), width: 1 }, font: "12px system-ui, sans-serif" };
    return {
      width: Math.max(plot.clientWidth, 200),
      height: 224,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] } },
      tzDate: clock,
      axes: [{ ...axis, values: moments }, { ...axis, size: 56, label: data.unit, labelFont: axis.font, labelSize: 18, values: (_, ticks) => ticks.map((tick) => number.format(tick)) }],
      series: [{ label: `Time (${zone()})`, value: "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...data.series.map((one) => series(figure, one))],
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
      const values = [data.times, ...data.series.map((one) => one.values)];
      const now = JSON.stringify([data.unit, data.series.map(({ label, kind, tone }) => [label, kind, tone])]);
      if (chart && now === shape) return chart.setData(values);
      shape = now;
      chart?.destroy();
      plot.replaceChildren();
      chart = new uPlot(options(figure, data, plot), values, plot);
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

  // <a data-span="ADDRESS"> in the figure: another stretch of time, without leaving the page.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("figure[data-chart] a[data-span]");
    // With a key held it is for another tab or window.
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const figure = link.closest("figure");
    figure.dataset.chart = link.dataset.span;
    figure.querySelectorAll("a[data-span]").forEach((other) => other.removeAttribute("aria-current"));
    link.setAttribute("aria-current", "true");
    history.replaceState(null, "", link.href);
    figure.dispatchEvent(new CustomEvent("disbatch:chart"));
  });
})();
