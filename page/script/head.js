// The headline, what its letters mean, and the figures.
function drawArrow(target, before, after) {
  target.append(before);
  html("span", { class: "to" }, target, "→");
  target.append(after);
}

// The letters of both placements, explained.
function drawLetters() {
  const placements = scene.states.map((state) => state.text).join(",");
  const dims = [...new Set([...placements.matchAll(/S(\d+)/g)].map(([, dim]) => Number(dim)))].sort((a, b) => a - b);
  const meanings = [
    [/S\d/, dims.map((dim) => `S${dim}`).join(", "), `split along dim ${dims.join(", ")} of the tensor`],
    [/\[/, "S0[3,5]", "split into these lengths, one for each rank"],
    [/\.\d/, "S0.1", "the number after the point says which mesh dim splits first"],
    [/R/, "R", "replicated: the same on every rank"],
    [/P/, "P", "partial: every rank holds an addend, and the value is their sum"],
    [/P\(/, "P(max)", "as P, but combined by this instead of a sum"],
  ];
  for (const [letter, name, meaning] of meanings) {
    if (!letter.test(placements)) continue;
    const item = html("li", {}, byId("letters"));
    html("b", {}, item, name);
    item.append(` ${meaning}`);
  }
}

function drawHead() {
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  drawArrow(byId("headline"), capital(scene.from.words), scene.to.words);
  drawArrow(byId("notation"), scene.from.text, scene.to.text);
  drawLetters();
  const [before, after] = [scene.from, scene.to].map((end) => `${end.mesh}${hasTwoMeshes ? ` (ranks ${end.ranks})` : ""}`);
  byId("subject").textContent = `${scene.dtype}[${scene.shape.join(", ")}] on ${hasTwoMeshes ? `${before} → ${after}` : before}`;
  const figures = {
    [isAssumed ? "time, estimated from assumed costs" : "time, estimated"]: inTime(scene.cost_us),
    steps: String(scene.steps.length),
    "the busiest rank sends": inBytes(scene.bytes),
    "all ranks send": inBytes(scene.total_bytes),
    "peak memory of a rank": inBytes(scene.peak_bytes),
  };
  if (scene.saved_bytes !== undefined) figures["saved by relabelling"] = inBytes(scene.saved_bytes);
  if (scene.crossing_bytes !== undefined) figures["cross between hosts"] = inBytes(scene.crossing_bytes);
  for (const [name, value] of Object.entries(figures)) {
    const pair = html("div", {}, byId("figures"));
    html("dt", {}, pair, name);
    const [, number, unit] = /^(\S+|≈ \S+)(?: (\S+))?$/.exec(value);
    const figure = html("dd", {}, pair, number + (unit ? " " : ""));
    if (unit) html("small", {}, figure, unit);
  }
}

// Light, dark, or as the system is.
function switchTheme() {
  const root = document.documentElement;
  byId("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
}
