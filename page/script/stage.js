// The ranks as tiles, each with the outline of the tensor and the box that it holds; a step moves pieces.
const stage = { step: -1, tiles: [], pieces: [] };

// When in a step the old boxes fade, the pieces travel, and the new boxes take their place.
const kLift = 0.12;
const kLand = 0.82;

const kLeastTile = 28;
const kTallest = 640;
const kHeading = 22;

// Tiles as wide as the page allows, rows folded where tiles would be too narrow, the whole not too tall.
function measureStage() {
  const room = widthOf(byId("walk"));
  let folds = 1;
  while (room / Math.ceil(scene.columns / folds) < kLeastTile && folds < scene.columns) folds *= 2;
  const columns = Math.ceil(scene.columns / folds);
  const rows = scene.rows * folds;
  const gap = clamp(room / columns / 7, 4, 20);
  const ratio = scene.down === undefined ? 0.3 : clamp(scene.height / Math.max(scene.width, 1), 0.45, 1);
  const highest = (kTallest / rows - gap - 12) / ratio;
  const tileWidth = Math.min((room - gap * (columns - 1)) / columns, Math.max(highest, kLeastTile), 170);
  const tileHeight = Math.max(tileWidth * ratio, 12);
  const label = clamp(tileWidth / 5, 8.5, 12.5);
  const headings = headingsOfMeshes();
  return { columns, rows, folds, gap, tileWidth, tileHeight, label, headings, rowHeight: tileHeight + label * 1.35 + gap, width: columns * (tileWidth + gap) - gap };
}

// Where the target has ranks of its own, their rows come below those of the source, and both have a heading.
function headingsOfMeshes() {
  const own = scene.tiles.filter((tile) => tile.in === "to");
  if (own.length === 0) return [];
  return [
    { row: 0, text: `before: ${scene.from.mesh}, ranks ${scene.from.ranks}` },
    { row: Math.min(...own.map((tile) => tile.row)), text: `after: ${scene.to.mesh}, ranks ${scene.to.ranks}` },
  ];
}

function topOf(row) {
  const { folds, rowHeight, headings } = stage.sizes;
  return row * folds * rowHeight + kHeading * headings.filter((heading) => heading.row <= row).length;
}

function placeOf(tile) {
  const { row, column } = scene.tiles[tile];
  const { columns, gap, tileWidth, rowHeight, label } = stage.sizes;
  return { x: (column % columns) * (tileWidth + gap), y: topOf(row) + Math.floor(column / columns) * rowHeight + label * 1.35 };
}

// A rectangle of the tensor inside a tile, in pixels.
function inTile([x, y, w, h]) {
  const { tileWidth, tileHeight } = stage.sizes;
  const [sx, sy] = [tileWidth / Math.max(scene.width, 1), tileHeight / Math.max(scene.height, 1)];
  return { x: x * sx, y: y * sy, width: w * sx, height: h * sy };
}

function labelOf({ rank, count }) {
  const isWide = stage.sizes.tileWidth >= 64;
  return (isWide ? "rank " : "") + rank + (count > 1 && isWide ? ` +${count - 1}` : "");
}

// The boxes of one state, a group per tile; empty ones are there with no size.
function drawState(index) {
  const state = scene.states[index];
  const layer = svg("g", { class: "state", "data-state": index }, byId("boxes"));
  state.tiles.forEach((held, tile) => {
    if (!held) return;
    const { x, y } = placeOf(tile);
    const group = svg("g", { transform: `translate(${x} ${y})`, style: hueOf(tile) }, layer);
    const isGroup = scene.tiles[tile].count > 1;
    const who = isGroup ? `${nameOf(tile)}\nrank ${scene.tiles[tile].rank}: ` : `${nameOf(tile)}\n`;
    const tip = `${who}${state.addends ? "an addend of " : ""}${held.at}\n${inBytes(held.bytes)}`;
    const rect = inTile(held.all ?? held.box);
    svg("rect", { class: "box", "data-tile": tile, "data-tip": tip, ...rect }, group);
    if (held.all) svg("rect", { class: "first", ...inTile(held.box) }, group);
    if (state.addends) svg("rect", { class: "hatch", fill: "url(#hatch-stage)", ...rect }, group);
  });
  return layer;
}

function drawPieces(step) {
  const layer = byId("pieces");
  layer.replaceChildren();
  layer.classList.toggle("sums", scene.steps[step].sums);
  stage.pieces = scene.steps[step].pieces.map(([from, to, x, y, w, h, bytes, ranks]) => {
    const source = placeOf(from);
    const target = placeOf(to);
    const rect = inTile([x, y, w, h]);
    const what = `rank ${scene.tiles[to].rank} ${from === to && ranks === 1 ? "keeps" : "takes"} ${inBytes(bytes)}`;
    const tip = from === to ? what : `${what}\nfrom ${ranks > 1 ? `${ranks} of ` : ""}${nameOf(from)}`;
    const element = svg("rect", { class: "piece", style: hueOf(from), "data-from": from, "data-to": to, "data-tip": tip, width: rect.width, height: rect.height }, layer);
    return { element, x: rect.x, y: rect.y, source, target };
  });
}

const eased = (p) => (p < 0.5 ? 2 * p * p : 1 - (2 - 2 * p) ** 2 / 2);

function movePieces(progress) {
  const way = eased(clamp((progress - kLift) / (kLand - kLift), 0, 1));
  for (const { element, x, y, source, target } of stage.pieces) {
    const left = x + source.x + (target.x - source.x) * way;
    const top = y + source.y + (target.y - source.y) * way;
    element.setAttribute("transform", `translate(${left.toFixed(2)} ${top.toFixed(2)})`);
  }
}

// Between the states `step` and `step + 1`.
function showStage(step, progress) {
  if (step !== stage.step) {
    byId("boxes").replaceChildren();
    stage.before = drawState(step);
    stage.after = scene.steps.length > 0 ? drawState(step + 1) : null;
    if (scene.steps.length > 0) drawPieces(step);
    stage.step = step;
  }
  if (!stage.after) return;
  const lift = clamp(progress / kLift, 0, 1);
  const settle = clamp((progress - kLand) / (1 - kLand), 0, 1);
  stage.before.style.opacity = (1 - 0.8 * lift) * (1 - settle);
  stage.after.style.opacity = settle;
  stage.after.style.pointerEvents = settle > 0.5 ? "auto" : "none";
  byId("pieces").style.opacity = lift * (1 - settle);
  byId("pieces").style.pointerEvents = lift * (1 - settle) > 0.5 ? "auto" : "none";
  movePieces(progress);
}

// A line between neighbouring tiles whose ranks are on different hosts.
function drawHostBorders(layer) {
  const { gap, tileWidth, tileHeight, rowHeight, label } = stage.sizes;
  const byPlace = new Map(scene.tiles.map((tile, i) => [Object.values(placeOf(i)).map(Math.round).join(), tile]));
  const isElsewhere = (tile, x, y) => {
    const other = byPlace.get([x, y].map(Math.round).join());
    return other !== undefined && other.host !== tile.host;
  };
  scene.tiles.forEach((tile, i) => {
    const { x, y } = placeOf(i);
    const [right, bottom] = [x + tileWidth + gap / 2, y + tileHeight + gap / 2];
    const [left, top] = [x - gap / 2, y - label * 1.35 - gap / 2];
    if (isElsewhere(tile, x + tileWidth + gap, y)) svg("line", { class: "border", x1: right, x2: right, y1: top, y2: bottom }, layer);
    if (isElsewhere(tile, x, y + rowHeight)) svg("line", { class: "border", x1: left, x2: right, y1: bottom, y2: bottom }, layer);
  });
}

function drawStage() {
  stage.sizes = measureStage();
  stage.step = -1;
  const { width, rows, rowHeight, gap, tileWidth, tileHeight, label, headings } = stage.sizes;
  const root = byId("stage");
  root.replaceChildren();
  root.setAttribute("width", width);
  root.setAttribute("height", rows * rowHeight - gap + kHeading * headings.length);
  defineHatch(root, "hatch-stage");
  const outlines = svg("g", {}, root);
  svg("g", { id: "boxes" }, root);
  svg("g", { id: "pieces" }, root);
  const labels = svg("g", {}, root);
  scene.tiles.forEach((tile, i) => {
    const { x, y } = placeOf(i);
    svg("rect", { class: "outline", "data-tile": i, "data-tip": nameOf(i) + (tile.host === undefined ? "" : `\non host ${tile.host}`), x, y, width: tileWidth, height: tileHeight, ...(scene.members ? { tabindex: 0, role: "button" } : {}) }, outlines);
    svg("text", { x, y: y - label * 0.4, "font-size": label }, labels, labelOf(tile));
  });
  for (const { row, text } of headings) svg("text", { class: "mesh-heading", x: 0, y: topOf(row) - kHeading + 12, "font-size": 12 }, labels, text);
  if (scene.crossing_bytes !== undefined) drawHostBorders(outlines);
}
