// Bytes and time by rank, and memory over the steps.
function drawBars(parent, what, series, format, tipOf) {
  const width = widthOf(parent);
  const height = 92;
  const top = 16;
  const most = Math.max(...series.flatMap(({ values }) => values), 0);
  const chart = svg("svg", { class: "bars", width, height: height + 18 }, parent);
  svg("text", { x: 0, y: 9, "font-size": 11 }, chart, `${what}, up to ${format(most)}`);
  svg("line", { class: "axis", x1: 0, x2: width, y1: top, y2: top, "stroke-dasharray": "2 3" }, chart);
  svg("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }, chart);
  const slot = width / scene.tiles.length;
  const bar = clamp((slot * 0.72) / series.length, 0.6, 11);
  scene.tiles.forEach((tile, i) => {
    series.forEach(({ values, name }, s) => {
      const tall = most > 0 ? ((height - top) * values[i]) / most : 0;
      const x = i * slot + slot / 2 + (s - series.length / 2) * bar;
      svg("rect", { class: name, x, y: height - tall, width: Math.max(bar - 0.5, 0.5), height: tall }, chart);
    });
    const every = Math.ceil(24 / slot);
    if (i % every === 0) svg("text", { x: i * slot + slot / 2, y: height + 13, "font-size": 10, "text-anchor": "middle" }, chart, tile.rank);
    svg("rect", { class: "hit", x: i * slot, y: 0, width: slot, height, "data-tip": tipOf(i) }, chart);
  });
}

function drawLoads() {
  const target = byId("load-charts");
  target.replaceChildren();
  const hasTimes = scene.steps.every((step) => step.us);
  const legend = byId("loads-legend");
  legend.replaceChildren();
  for (const [name, colour] of [["sent", "var(--accent)"], ["received", "var(--soft)"]]) {
    html("span", { class: "key", style: `background: ${colour}` }, legend);
    legend.append(name);
  }
  if (scene.ranks > scene.tiles.length) legend.append(" · the first rank of each tile");
  scene.steps.forEach((step, s) => {
    const row = html("div", { class: "load-row" }, target);
    html("h3", {}, row, `${s + 1} ${step.kind}`);
    const who = (i) => `rank ${scene.tiles[i].rank}`;
    const bytes = [{ values: step.sent, name: "bar-sent" }, { values: step.received, name: "bar-received" }];
    drawBars(html("div", {}, row), "sent and received", bytes, inBytes, (i) => `${who(i)}\nsends ${inBytes(step.sent[i])}\nreceives ${inBytes(step.received[i])}`);
    const times = html("div", {}, row);
    if (hasTimes) drawBars(times, "time", [{ values: step.us, name: "bar-time" }], inTime, (i) => `${who(i)}\n${inTime(step.us[i])}`);
  });
  byId("loads").hidden = scene.steps.length === 0;
}

// Resting bytes as narrow columns, a step's peak as a wide one between them.
function memoryColumns() {
  const columns = [{ bytes: scene.resting[0], name: "rest", what: "before", weight: 0.4 }];
  scene.steps.forEach((step, i) => {
    columns.push({ bytes: step.peak_bytes, name: "peak", what: `${i + 1} ${step.kind}`, weight: 1 });
    columns.push({ bytes: scene.resting[i + 1], name: "rest", what: i + 1 === scene.steps.length ? "after" : "", weight: 0.4 });
  });
  return columns;
}

function drawMemory() {
  const chart = byId("memory-chart");
  chart.replaceChildren();
  const width = widthOf(byId("memory"));
  const [top, height] = [22, 150];
  chart.setAttribute("width", width);
  chart.setAttribute("height", height + 22);
  const columns = memoryColumns();
  const peak = Math.max(...columns.map(({ bytes }) => bytes), 1);
  const limit = scene.max_bytes;
  const most = Math.max(peak, Math.min(limit ?? 0, 3 * peak)) * 1.06;
  const high = (bytes) => ((height - top) * bytes) / most;
  const unit = width / columns.reduce((sum, { weight }) => sum + weight, 0);
  let x = 0;
  for (const { bytes, name, what, weight } of columns) {
    const wide = unit * weight;
    svg("rect", { class: name, x: x + 1, y: height - high(bytes), width: Math.max(wide - 2, 1), height: high(bytes), "data-tip": `${what || "between steps"}\n${inBytes(bytes)}` }, chart);
    if (wide > 50 && name === "peak") svg("text", { x: x + wide / 2, y: height - high(bytes) - 6, "font-size": 11.5, "text-anchor": "middle" }, chart, inBytes(bytes));
    if (what && wide > what.length * 7.4) svg("text", { x: x + wide / 2, y: height + 16, "font-size": 11, "text-anchor": "middle" }, chart, what);
    x += wide;
  }
  svg("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }, chart);
  if (limit === undefined) return;
  const isAbove = limit > most;
  const y = isAbove ? 6 : height - high(limit);
  if (!isAbove) svg("line", { class: "limit", x1: 0, x2: width, y1: y, y2: y }, chart);
  svg("text", { class: "limit-text", x: width, y: isAbove ? 10 : y - 6, "font-size": 11.5, "text-anchor": "end" }, chart, `limit ${inBytes(limit)}${isAbove ? ", far above" : ""}`);
}
