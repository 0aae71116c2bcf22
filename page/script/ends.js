// The tensor before and after, cut into the boxes that ranks hold.
function tipOfCell([x, y, w, h, ranks, , count], end) {
  const along = (dim, begin, length) => (dim === undefined ? "" : `dim ${dim}: ${begin} to ${begin + length}\n`);
  const who = count === 1 ? `rank ${ranks}` : `${plural(count, "rank")}: ${ranks}`;
  return along(scene.down, y, h) + along(scene.across, x, w) + who + (end.addends ? "\neach holds an addend" : "");
}

const kLeastLetters = 5;

// The ranks in a cell, as much of it as fits; a strip below has the colours of those that hold the same.
function labelCell(target, [, , , , ranks, tiles], x, y, w, h) {
  const size = clamp(h * 0.4, 9, 13);
  const room = Math.floor((w - 6) / (size * 0.62));
  const text = ranks.length <= room ? ranks : room > kLeastLetters ? `${ranks.slice(0, room - 1)}…` : "";
  const hasStrip = tiles.length > 1 && h > 30 && w > 26;
  if (text && h >= size + 3) {
    svg("text", { class: "held", x: x + w / 2, y: y + h / 2 - (hasStrip ? 3 : 0), "font-size": size, "text-anchor": "middle", "dominant-baseline": "central" }, target, text);
  }
  if (!hasStrip) return;
  const width = Math.min(16, (w - 10) / tiles.length);
  tiles.forEach((tile, i) => {
    const left = x + w / 2 + (i - tiles.length / 2) * width;
    svg("rect", { class: "swatch", style: hueOf(tile) + "; stroke: var(--paper)", x: left, y: y + h - 13, width: width - 1, height: 8, rx: 1 }, target);
  });
}

function drawPicture(figure, end, id) {
  const picture = svg("svg", { role: "img", "aria-label": `${end.text}: who holds what` }, figure);
  const margin = { left: scene.down === undefined ? 0 : 22, top: 20 };
  const width = widthOf(figure) - margin.left;
  const ratio = scene.down === undefined ? 0.16 : clamp(scene.height / Math.max(scene.width, 1), 0.3, 1);
  const height = Math.min(width * ratio, 340);
  picture.setAttribute("width", width + margin.left);
  picture.setAttribute("height", height + margin.top);
  defineHatch(picture, id);
  if (scene.across !== undefined) svg("text", { x: margin.left, y: 12, "font-size": 11.5 }, picture, `dim ${scene.across} → ${scene.width}`);
  if (scene.down !== undefined) {
    svg("text", { "font-size": 11.5, "text-anchor": "end", transform: `translate(12 ${margin.top}) rotate(-90)` }, picture, `${scene.height} ← dim ${scene.down}`);
  }
  const body = svg("g", { transform: `translate(${margin.left} ${margin.top})` }, picture);
  svg("rect", { class: "outline", width, height }, body);
  const [sx, sy] = [width / Math.max(scene.width, 1), height / Math.max(scene.height, 1)];
  const look = end.cells.length > 400 ? "cell dense" : "cell";
  for (const cell of end.cells) {
    const [x, y, w, h] = [cell[0] * sx, cell[1] * sy, cell[2] * sx, cell[3] * sy];
    svg("rect", { class: cell[6] > 1 ? `${look} shared` : look, style: hueOf(cell[5][0]), "stroke-width": 1.5, x, y, width: w, height: h, "data-tip": tipOfCell(cell, end) }, body);
    if (end.cells.length <= 400) labelCell(body, cell, x, y, w, h);
  }
  if (end.addends) svg("rect", { class: "hatch", fill: `url(#${id})`, width, height }, body);
}

function drawEnds() {
  const ends = byId("ends");
  ends.replaceChildren();
  const figures = ["before", "after"].map((when) => {
    if (when === "after") html("div", { class: "arrow", "aria-hidden": "true" }, ends, "→");
    const figure = html("figure", { id: when }, ends);
    const caption = html("figcaption", {}, figure, `${when} `);
    html("b", {}, caption, (when === "before" ? scene.from : scene.to).text);
    return figure;
  });
  [scene.from, scene.to].forEach((end, i) => {
    drawPicture(figures[i], end, `hatch-end-${i}`);
    if (end.addends) html("p", { class: "note" }, figures[i], "hatched: every rank holds an addend, not the value");
    if (end.idle) html("p", { class: "note" }, figures[i], `nothing on ${/^\d+$/.test(end.idle) ? "rank" : "ranks"} ${end.idle}`);
    if (hasTwoMeshes) html("p", { class: "note" }, figures[i], `on ${end.mesh}: ranks ${end.ranks}`);
    if (end.cells.length === 0 && scene.width * scene.height > 0) html("p", { class: "note" }, figures[i], "more than 4,096 boxes: see the tiles below");
  });
  for (const { dim, length, split } of scene.hidden) {
    const how = split ? "it is split too, and boxes that differ in it alone lie on one another" : "every rank has all of it";
    html("p", { class: "note hidden-dim" }, ends, `Dim ${dim}, of length ${length.toLocaleString("en")}, is not drawn: ${how}.`);
  }
}
