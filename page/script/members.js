// The ranks of a tile that stands for several, each with what it holds before and after; a click opens them.
const kMemberWidth = 46;

// A rank's box inside the space that the tile's ranks hold together: in the whole tensor it would be a sliver.
function drawHolding(parent, tile, rect, state, what) {
  const [left, top, width, height] = state.tiles[tile]?.all ?? [0, 0, scene.width, scene.height];
  const tall = clamp((kMemberWidth * height) / Math.max(width, 1), 14, kMemberWidth);
  const picture = svg("svg", { role: "img", "aria-label": what, width: kMemberWidth, height: tall, "data-tip": what }, parent);
  svg("rect", { class: "outline", width: kMemberWidth, height: tall }, picture);
  if (!rect || rect[2] * rect[3] === 0) return;
  const [sx, sy] = [kMemberWidth / Math.max(width, 1), tall / Math.max(height, 1)];
  svg("rect", { class: "box", style: hueOf(tile), x: (rect[0] - left) * sx, y: (rect[1] - top) * sy, width: Math.max(rect[2] * sx, 2), height: Math.max(rect[3] * sy, 2) }, picture);
}

function textOfHolding(rank, when, rect) {
  if (!rect) return `rank ${rank} ${when}: not in this mesh`;
  const along = (dim, begin, length) => (dim === undefined ? "" : `\ndim ${dim}: ${begin} to ${begin + length}`);
  return `rank ${rank} ${when}${along(scene.down, rect[1], rect[3])}${along(scene.across, rect[0], rect[2])}`;
}

function openMembers(tile) {
  const target = byId("members");
  const isOpen = target.dataset.tile === String(tile);
  target.replaceChildren();
  delete target.dataset.tile;
  if (isOpen) return fitFrame();
  target.dataset.tile = tile;
  html("h3", {}, target, `The ${scene.tiles[tile].count} ranks of this tile, each before and after, in the part of the tensor that they hold together`);
  const grid = html("div", { class: "member-grid" }, target);
  for (const [rank, before, after] of scene.members[tile]) {
    const member = html("figure", { class: "member" }, grid);
    html("figcaption", {}, member, rank);
    drawHolding(member, tile, before, scene.states[0], textOfHolding(rank, "before", before));
    drawHolding(member, tile, after, scene.states.at(-1), textOfHolding(rank, "after", after));
  }
  return fitFrame();
}

function openOnClick() {
  if (!scene.members) return;
  const tileOf = (event) => event.target.closest?.("[data-tile]")?.dataset.tile;
  byId("stage").addEventListener("click", (event) => {
    if (tileOf(event) !== undefined) openMembers(Number(tileOf(event)));
  });
  byId("stage").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && tileOf(event) !== undefined) openMembers(Number(tileOf(event)));
  });
}
