// The data, and the making of elements.
const scene = JSON.parse(document.getElementById("scene").textContent);
const byId = (id) => document.getElementById(id);
const kLeastWidth = 120;
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

function svg(name, attributes, parent, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function html(name, attributes, parent, text) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

// The room inside an element's padding.
function widthOf(element) {
  const { paddingLeft, paddingRight } = getComputedStyle(element);
  return Math.max(element.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight), kLeastWidth);
}

function inBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return (unit === 0 ? bytes : bytes.toFixed(1)) + " " + units[unit];
}

// Times from assumed costs get two digits and a sign that says so.
const isAssumed = scene.is_estimate;

function inTime(us) {
  if (isAssumed) return us > 0 ? `≈ ${inRoundTime(Number(us.toPrecision(2)))}` : "0 µs";
  if (us >= 1e6) return (us / 1e6).toFixed(2) + " s";
  return us >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us.toFixed(2) + " µs";
}

function inRoundTime(us) {
  if (us >= 1e6) return `${Number((us / 1e6).toPrecision(2))} s`;
  return us >= 1e3 ? `${Number((us / 1e3).toPrecision(2))} ms` : `${us} µs`;
}

const hasTwoMeshes = scene.from.mesh !== scene.to.mesh || scene.from.ranks !== scene.to.ranks;

const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// Neighbours on the mesh have neighbouring hues.
const hueOf = (tile) => `--hue: ${Math.round(28 + (330 * tile) / Math.max(scene.tiles.length, 6))}`;

function nameOf(tile) {
  const { ranks, count, rank } = scene.tiles[tile];
  return count === 1 ? `rank ${rank}` : `ranks ${ranks}`;
}

// A hatch over what is an addend; its lines keep their distance on the screen.
function defineHatch(target, id) {
  const pattern = svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("defs", {}, target));
  svg("line", { class: "hatch-line", x1: 0, y1: 0, x2: 0, y2: 6, "stroke-width": 2 }, pattern);
}

// What the pointer is over explains itself.
function explainOnHover() {
  const tip = byId("tip");
  document.addEventListener("pointermove", (event) => {
    const target = event.target.closest?.("[data-tip]");
    tip.classList.toggle("shown", Boolean(target));
    if (!target) return;
    tip.textContent = target.dataset.tip;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = clamp(event.clientX + 14, 8, innerWidth - width - 8) + "px";
    tip.style.top = (event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18) + "px";
  });
}
