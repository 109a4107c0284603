// The page's own code: curves and bowls by plotly, and the runs behind a cell. Text enters the page as text only.
"use strict";

(() => {
  const known = JSON.parse(document.getElementById("nlq").textContent);
  const at = (id) => document.getElementById(id);
  const chosen = (id) => at(id).value;
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "pentagon", "star"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const AXES = {
    steps: { title: "Training step", of: (line) => (step) => step },
    tokens: { title: "Training tokens", of: (line) => times(line.tokens_per_step) },
    flops: { title: "Training FLOPs", of: (line) => times(line.tokens_per_step && line.flops_per_token && line.tokens_per_step * line.flops_per_token) },
    seconds: { title: "Training time (s)", of: () => (step, seconds) => seconds },
  };
  const EARLY = 0.25; // share of training, from the start, that does not set the range of the y axis
  const MARGIN = 0.06;

  const times = (factor) => (factor ? (step) => step * factor : () => null);
  const finite = (value) => value !== null && Number.isFinite(value);
  // plotly reads a little HTML and %{templates} in labels: names of arms are shown as they are written
  const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("{", "&#123;");

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Colours: whatever the style sheet gives in light or dark.
  function colours() {
    const body = getComputedStyle(document.body);
    const of = (arm) => getComputedStyle(document.querySelector(`label[for="arm-${arm}"] .swatch`)).backgroundColor;
    return { ink: body.color, paper: body.backgroundColor, grid: getComputedStyle(document.querySelector("fieldset")).borderTopColor, arms: known.arms.map((_, arm) => of(arm)) };
  }

  function layout(look, more) {
    const axis = { gridcolor: look.grid, zerolinecolor: look.grid, linecolor: look.grid, color: look.ink, automargin: true, exponentformat: "SI" };
    const { title, xaxis, yaxis, ...rest } = more;
    return {
      paper_bgcolor: look.paper, plot_bgcolor: look.paper, font: { color: look.ink, family: "system-ui, sans-serif", size: 13 },
      title: { text: title, x: 0, xanchor: "left", y: 1, yanchor: "top", yref: "container", pad: { t: 36, l: 10 }, font: { size: 13 } },
      margin: { l: 8, r: 12, t: 60, b: 52 }, hovermode: "closest", hoverdistance: 30, showlegend: false,
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hoverlabel: { bgcolor: look.paper, bordercolor: look.ink, font: { color: look.ink }, align: "left", namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: look.ink, activecolor: look.ink },
      xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
    };
  }

  const CONFIG = { displaylogo: false, responsive: true, displayModeBar: true, modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]] };

  // Curves
  const places = {}; // by chart: the curve and the point that the keys have reached
  const armShown = (arm) => at(`arm-${arm}`).checked;
  const named = (line) => [line.label, line.point, `seed ${line.seed}`].filter(Boolean).join(", ");
  const points = [...new Set(known.lines.map((line) => line.point))];

  function curve(line, look) {
    const series = line.series[chosen("values")];
    if (!series) return null;
    const place = AXES[chosen("axis")].of(line);
    const rows = series.steps.map((step, i) => [place(step, series.seconds[i]), series.values[i], step]).filter((row) => finite(row[0]));
    if (!rows.some((row) => finite(row[1]))) return null;
    const last = rows.findLastIndex((row) => finite(row[1]));
    const few = rows.length <= 200;
    const symbols = rows.map((_, i) => (line.diverged && i === last ? "x" : SYMBOLS[line.arm % SYMBOLS.length]));
    const sizes = rows.map((_, i) => (line.diverged && i === last ? 12 : few ? 7 : 0));
    return {
      x: rows.map((row) => row[0]), y: rows.map((row) => row[1]), customdata: rows.map((row) => [row[2], row[1]]),
      type: "scatter", mode: few || line.diverged ? "lines+markers" : "lines", opacity: line.best ? 1 : 0.55, name: plain(named(line)), meta: [plain(named(line)), line.run_id],
      line: { color: look.arms[line.arm], width: few ? 1.6 : 1, dash: chosen("points") === "all" ? DASHES[points.indexOf(line.point) % DASHES.length] : "solid" },
      marker: { color: look.arms[line.arm], symbol: symbols, size: sizes },
      hovertemplate: "<b>%{meta[0]}</b><br>run %{meta[1]}<br>step %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    };
  }

  function span(values) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = MARGIN * (high - low) || 0.01 * Math.abs(high) || 0.1;
    return [low - margin, high + margin];
  }

  // Most of a curve's height is its first steps: the end, where arms differ, sets the range unless all is asked for.
  function lateRange(traces) {
    const least = (values) => values.reduce((a, b) => Math.max(a, b), 0);
    const end = least(traces.map((trace) => least(trace.x)));
    const late = traces.flatMap((trace) => trace.y.filter((value, i) => finite(value) && trace.x[i] >= EARLY * end));
    return late.length ? span([late.reduce((a, b) => Math.min(a, b)), late.reduce((a, b) => Math.max(a, b))]) : null;
  }

  function drawCurves() {
    const look = colours();
    const wanted = known.lines.filter((line) => armShown(line.arm) && (line.best || chosen("points") === "all"));
    const found = wanted.map((line) => [line, curve(line, look)]);
    const traces = found.filter(([, trace]) => trace).map(([, trace]) => trace);
    const range = chosen("fit") === "late" ? lateRange(traces) : null;
    const yaxis = range ? { range, autorange: false } : { autorange: true };
    const xaxis = { title: { text: AXES[chosen("axis")].title }, autorange: true };
    Plotly.react(at("curve"), traces, layout(look, { title: known.names[chosen("values")], xaxis, yaxis }), CONFIG);
    forget("curve");
    const missing = found.filter(([line, trace]) => !trace && !(chosen("values") === "gain" && known.arms[line.arm].baseline)).map(([line]) => named(line));
    at("curve-missing").textContent = missing.length ? `Not drawn, for want of such values: ${missing.join("; ")}.` : "";
  }

  // Bowls
  const helds = [...new Set(known.bowls.map((one) => one.held))];

  function bowl(one, look) {
    const name = plain([one.label, one.held].filter(Boolean).join(", "));
    const alive = one.dips.filter((dip) => dip.loss_nats !== null);
    const colour = look.arms[one.arm];
    const shape = SYMBOLS[one.arm % SYMBOLS.length];
    const shared = { type: "scatter", hovertemplate: "<b>%{meta}</b><br>η_max %{x}<br>%{customdata[0]}<br>%{customdata[1]}<extra></extra>", meta: name };
    const traces = [{
      ...shared, name, x: alive.map((dip) => dip.lr_max), y: alive.map((dip) => dip.loss_nats), mode: "lines+markers",
      customdata: alive.map((dip) => [dip.loss_nats, plain(dip.said)]), line: { color: colour, width: 1.6, dash: DASHES[helds.indexOf(one.held) % DASHES.length] },
      marker: { color: colour, symbol: alive.map((dip) => (dip.best ? `${shape}-open` : shape)), size: alive.map((dip) => (dip.best ? 13 : 8)), line: { width: alive.map((dip) => (dip.best ? 3 : 0)), color: colour } },
    }];
    const lost = one.dips.filter((dip) => dip.loss_nats === null);
    if (lost.length) {
      traces.push({ ...shared, name: `${name} (diverged)`, x: lost.map((dip) => dip.lr_max), y: lost.map(() => 0.95), yaxis: "y2", mode: "markers",
        customdata: lost.map((dip) => ["diverged", plain(dip.said)]), marker: { color: colour, symbol: "x", size: 12 } });
    }
    if (one.lowest) {
      traces.push({ ...shared, x: [one.lowest[0]], y: [one.lowest[1]], mode: "markers", customdata: [[one.lowest[1], "lowest point of the parabola"]],
        marker: { color: colour, symbol: "diamond-tall", size: 13, line: { color: look.paper, width: 1 } } });
    }
    return traces;
  }

  // The top of the chart is kept for the crosses of diverged points.
  function roomy(traces) {
    const values = traces.filter((trace) => trace.yaxis !== "y2").flatMap((trace) => trace.y);
    if (!values.length) return [0, 1];
    const [low, high] = span(values);
    return [low, high + 0.15 * (high - low)];
  }

  function drawBowls() {
    if (!at("bowl")) return;
    const look = colours();
    const traces = known.bowls.filter((one) => armShown(one.arm)).flatMap((one) => bowl(one, look));
    const rates = [...new Set(known.bowls.flatMap((one) => one.dips.map((dip) => dip.lr_max)))].sort((a, b) => a - b);
    Plotly.react(at("bowl"), traces, layout(look, {
      title: "Loss that chooses the point (nats a token) by η_max",
      xaxis: { type: "log", autorange: true, tickmode: "array", tickvals: rates, ticktext: rates.map((rate) => rate.toExponential()), tickangle: at("bowl").clientWidth < 600 ? 90 : 0 }, yaxis: { range: roomy(traces), autorange: false },
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    }), CONFIG);
    forget("bowl");
  }

  // What the pointer hovers over is also said in a line of text; keys move along the curves.
  function say(id, point) {
    const [value, more] = id === "curve" ? [point.customdata[1], `run ${point.data.meta[1]}, step ${point.customdata[0]}`] : [point.customdata[0], `η_max ${point.x}; ${point.customdata[1]}`];
    const name = new DOMParser().parseFromString(point.data.name || point.data.meta, "text/html").body.textContent;
    at(`${id}-said`).textContent = `${name}, ${more}: ${value}`;
  }

  // A new drawing has other points under the pointer: what was said of the old ones goes.
  function forget(id) {
    delete places[id];
    at(`${id}-said`).textContent = at(id).dataset.keys;
    Plotly.Fx.unhover(at(id));
  }

  function moved(id, key) {
    const traces = at(id).data;
    if (!traces.length) return;
    const [old, index] = places[id] || [0, -1];
    let number = Math.min(old, traces.length - 1);
    let next = index + { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (key === "ArrowUp" || key === "ArrowDown") {
      const x = traces[number].x[Math.max(0, index)];
      number = (number + (key === "ArrowDown" ? 1 : traces.length - 1)) % traces.length;
      const far = traces[number].x.map((value) => Math.abs(value - x));
      next = far.indexOf(far.reduce((a, b) => Math.min(a, b)));
    }
    next = Math.max(0, Math.min(traces[number].x.length - 1, next));
    places[id] = [number, next];
    const trace = traces[number];
    Plotly.Fx.hover(at(id), [{ curveNumber: number, pointNumber: next }], [trace.yaxis === "y2" ? "xy2" : "xy"]);
    say(id, { data: trace, customdata: trace.customdata[next], x: trace.x[next] });
  }

  function zoomed(id, factor) {
    const axes = at(id)._fullLayout;
    const ranges = {};
    for (const name of ["xaxis", "yaxis"]) {
      const [low, high] = axes[name].range;
      const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
      ranges[`${name}.range`] = [middle - half, middle + half];
    }
    Plotly.relayout(at(id), ranges);
  }

  function keys(id, draw) {
    at(id).addEventListener("keydown", (event) => {
      const key = event.key;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (key.startsWith("Arrow")) moved(id, key);
      else if (key === "+" || key === "=") zoomed(id, 0.7);
      else if (key === "-" || key === "−") zoomed(id, 1 / 0.7);
      else if (key === "0") Plotly.relayout(at(id), { "xaxis.autorange": true, "yaxis.autorange": true });
      else return;
      event.preventDefault();
    });
    at(id).on("plotly_hover", (event) => say(id, event.points[0]));
  }

  // The runs behind a cell
  const list = (facts) => element("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

  function run(number, open) {
    const one = known.runs[number];
    const spec = element("details", {}, element("summary", {}, "Resolved spec"), element("pre", {}, JSON.stringify(one.spec, null, 2)));
    const made = element("details", {}, element("summary", {}, element("b", {}, one.title), ` · ${one.run_id} · ${one.loss}`), list(one.facts), spec);
    made.open = open;
    return made;
  }

  function open(button) {
    const cell = button.parentElement;
    const row = cell.parentElement;
    const table = known.tables[row.closest("table").dataset.key];
    const column = table.columns[cell.cellIndex];
    const behind = table.rows[row.sectionRowIndex][column.both ? "both" : "own"];
    const title = `${row.cells[0].textContent} · ${column.header}`;
    const count = `${behind.length} ${behind.length === 1 ? "run stands" : "runs stand"} behind this cell.`;
    at("behind").replaceChildren(
      element("h2", { id: "behind-title" }, title), element("p", { class: "value" }, button.textContent), element("p", {}, [column.means, count].filter(Boolean).join(" ")),
      ...behind.map((number, i) => run(number, i === 0)),
    );
    at("dialog").showModal();
    at("dialog").scrollTop = 0;
  }

  function move(event) {
    const cell = event.target.closest("tbody th, tbody td");
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!cell || !step) return;
    const next = cell.closest("tbody").rows[cell.parentElement.sectionRowIndex + step[0]]?.cells[cell.cellIndex + step[1]]?.querySelector("button");
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // Light and dark
  const dark = () => getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);

  function draw() {
    at("theme").textContent = dark() ? "Light" : "Dark";
    at("theme").setAttribute("aria-pressed", String(dark()));
    drawCurves();
    drawBowls();
  }

  function unfold() {
    const target = location.hash && at(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  }

  at("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const id of ["values", "axis", "points", "fit"]) at(id).addEventListener("change", drawCurves);
  at("arms").addEventListener("change", () => { drawCurves(); drawBowls(); });
  for (const table of document.querySelectorAll("table")) {
    table.addEventListener("keydown", move);
    table.addEventListener("click", (event) => { const button = event.target.closest("button"); if (button) open(button); });
  }
  at("close").addEventListener("click", () => at("dialog").close());
  at("dialog").addEventListener("click", (event) => { if (event.target === at("dialog")) at("dialog").close(); });
  addEventListener("hashchange", unfold);
  unfold();
  draw();
  for (const id of ["curve", "bowl"]) if (at(id)) keys(id);
})();
