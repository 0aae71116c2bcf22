// The headline and the figures.
function drawHead() {
  const headline = byId("headline");
  headline.append(scene.from.text);
  html("span", { class: "to" }, headline, "→");
  headline.append(scene.to.text);
  const meshes = scene.from.mesh === scene.to.mesh ? scene.from.mesh : `${scene.from.mesh} → ${scene.to.mesh}`;
  byId("subject").textContent = `${scene.dtype}[${scene.shape.join(", ")}] on ${meshes}`;
  const figures = {
    time: inTime(scene.cost_us),
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
    const [number, unit] = value.split(" ");
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
