// Who sends to whom, and how much: a matrix of bytes for each step, to be read without playing anything.
const kLeastCellText = 40;
const kTallestMatrix = 640;

// Bytes in few letters.
function inShortBytes(bytes) {
  const [number, unit] = inBytes(bytes).split(" ");
  return `${Number(number) >= 100 ? Math.round(number) : number} ${unit}`;
}

// What the ranks receive, in one sentence.
function sentenceOf(step) {
  if (step.flows.length === 0) return "Nothing is sent: every rank has what it needs.";
  const isGrouped = scene.ranks > scene.tiles.length;
  const receivers = [...new Set(step.flows.map(([, to]) => to))];
  const amounts = receivers.map((tile) => step.received[tile]);
  const [least, most] = [Math.min(...amounts), Math.max(...amounts)];
  const range = least === most ? inBytes(most) : `${inBytes(least)} to ${inBytes(most)}`;
  const isAll = receivers.length === scene.tiles.length;
  const who = isGrouped ? "The first rank of a tile receives" : isAll ? "Every rank receives" : receivers.length === 1 ? `${nameOf(receivers[0])} receives` : `${receivers.length} ranks receive`;
  return `${who} ${range}${isGrouped || isAll || receivers.length === 1 ? "" : " each"}${sharesOf(step, receivers)}.`;
}

// From how many others, where every flow is alike.
function sharesOf(step, receivers) {
  const isAlike = step.flows.every(([, , bytes]) => bytes === step.flows[0][2]);
  const senders = step.flows.length / receivers.length;
  if (!isAlike || !Number.isInteger(senders) || scene.ranks > scene.tiles.length || scene.crossing_bytes !== undefined) return "";
  if (receivers.some((tile) => step.received[tile] !== senders * step.flows[0][2])) return "";
  return senders === 1 ? " from one other" : `: ${inBytes(step.flows[0][2])} from each of ${senders} others`;
}

// Labels of every so many ranks, so that they do not touch.
function labelEdges(chart, rows, columns, cell, left, top) {
  const rankOf = (tile) => scene.tiles[tile].rank;
  const everyRow = Math.ceil(14 / cell);
  const everyColumn = Math.ceil((8 + 7 * String(rankOf(columns.at(-1))).length) / cell);
  rows.forEach((tile, i) => {
    if (i % everyRow === 0) svg("text", { x: left - 6, y: top + (i + 0.5) * cell, "font-size": 10.5, "text-anchor": "end", "dominant-baseline": "central" }, chart, rankOf(tile));
  });
  columns.forEach((tile, i) => {
    if (i % everyColumn === 0) svg("text", { x: left + (i + 0.5) * cell, y: top - 6, "font-size": 10.5, "text-anchor": "middle" }, chart, rankOf(tile));
  });
}

// Two lines in a cell: the number and the unit.
function labelFlow(chart, bytes, x, y, isDark) {
  inShortBytes(bytes).split(" ").forEach((part, line) => {
    svg("text", { class: isDark ? "on-dark" : "on-light", x, y: y + (line - 0.5) * 12, "font-size": 10.5, "text-anchor": "middle", "dominant-baseline": "central" }, chart, part);
  });
}

// Rows for the tiles that send in this step, columns for those that receive.
function drawMatrix(parent, step) {
  const tilesAt = (end) => [...new Set(step.flows.map((flow) => flow[end]))].sort((a, b) => a - b);
  const [rows, columns] = [tilesAt(0), tilesAt(1)];
  const [left, top] = [50, 34];
  const cell = clamp((widthOf(parent) - left - 2) / columns.length, 2, Math.min(54, Math.max(kTallestMatrix / rows.length, 4)));
  const [width, height] = [cell * columns.length, cell * rows.length];
  const chart = svg("svg", { class: "matrix", role: "img", "aria-label": "bytes from each rank to each", width: left + width + 2, height: top + height + 2 }, parent);
  svg("text", { x: left, y: 10, "font-size": 11 }, chart, "to rank →");
  svg("text", { "font-size": 11, "text-anchor": "end", transform: `translate(10 ${top}) rotate(-90)` }, chart, "← from rank");
  labelEdges(chart, rows, columns, cell, left, top);
  svg("rect", { class: "outline", x: left, y: top, width, height }, chart);
  const place = (from, to) => ({ x: left + columns.indexOf(to) * cell + 0.5, y: top + rows.indexOf(from) * cell + 0.5, width: Math.max(cell - 1, 1), height: Math.max(cell - 1, 1) });
  if (scene.ranks === scene.tiles.length) {
    for (const tile of rows.filter((row) => columns.includes(row))) svg("rect", { class: "own", ...place(tile, tile), "data-tip": `${nameOf(tile)}: what it keeps is not sent` }, chart);
  }
  const most = Math.max(...step.flows.map(([, , bytes]) => bytes));
  for (const [from, to, bytes] of step.flows) {
    const tone = 0.2 + (0.8 * bytes) / most;
    const at = place(from, to);
    svg("rect", { class: "flow", "fill-opacity": tone.toFixed(3), ...at, "data-from": from, "data-to": to, "data-bytes": bytes, "data-tip": `${nameOf(from)} → rank ${scene.tiles[to].rank}\n${inBytes(bytes)}` }, chart);
    if (cell >= kLeastCellText) labelFlow(chart, bytes, at.x + cell / 2, at.y + cell / 2, tone > 0.55);
  }
}

function drawFlows() {
  const target = byId("matrices");
  target.replaceChildren();
  const isGrouped = scene.ranks > scene.tiles.length;
  byId("flows-legend").textContent = isGrouped
    ? "a row for each tile that sends, a column for the first rank of each tile; the stronger the colour, the more"
    : "a row for each rank that sends, a column for each that receives; the stronger the colour, the more";
  if (scene.crossing_bytes !== undefined) byId("flows-legend").append("; by whose bytes they are, not over which rank of a host they go");
  scene.steps.forEach((step, s) => {
    const figure = html("figure", {}, target);
    html("h3", {}, figure, `${s + 1} ${step.kind}${step.over ? ` over ${step.over}` : ""}`);
    html("p", { class: "note" }, figure, sentenceOf(step));
    if (step.flows.length > 0) drawMatrix(figure, step);
  });
  byId("flows").hidden = scene.steps.length === 0;
}
