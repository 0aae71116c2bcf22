// Playing, stepping and dragging through the steps. Time runs from 0 to the number of steps.
const walk = { time: 0, isPlaying: false, weights: [] };
const kSecondsPerStep = 2.4;

// A step's share of the timeline is its share of the cost, but no step vanishes.
function weighSteps() {
  const least = 0.12 / Math.max(scene.steps.length, 1);
  const raw = scene.steps.map((step) => Math.max(step.cost_us / Math.max(scene.cost_us, 1e-9), least));
  const sum = raw.reduce((a, b) => a + b, 0);
  walk.weights = raw.map((weight) => weight / sum);
}

function fractionOf(time) {
  const step = clamp(Math.floor(time), 0, Math.max(walk.weights.length - 1, 0));
  const before = walk.weights.slice(0, step).reduce((a, b) => a + b, 0);
  return before + (walk.weights[step] ?? 0) * (time - step);
}

function timeAt(fraction) {
  let before = 0;
  for (let i = 0; i < walk.weights.length; ++i) {
    if (fraction <= before + walk.weights[i] || i === walk.weights.length - 1) {
      return i + clamp((fraction - before) / walk.weights[i], 0, 1);
    }
    before += walk.weights[i];
  }
  return 0;
}

function describe(step, progress) {
  const caption = byId("caption");
  caption.replaceChildren();
  if (scene.steps.length === 0) {
    caption.append("Nothing to do: the layouts are the same.");
    return;
  }
  const now = scene.steps[step];
  html("b", {}, caption, `${step + 1} of ${scene.steps.length}: ${now.kind}${now.over ? " over " + now.over : ""}`);
  caption.append(" takes ");
  html("code", {}, caption, scene.states[step].text);
  caption.append(" to ");
  html("code", {}, caption, scene.states[step + 1].text);
  const sums = now.sums ? " Addends that meet are combined." : "";
  const waits = now.cost_us > 0 ? ` in ${inTime(now.cost_us)}, ${inTime(now.latency_us)} of it before bytes move` : "";
  const crosses = now.crossing_bytes > 0 ? `, ${inBytes(now.crossing_bytes)} cross between hosts` : "";
  caption.append(`${waits}; ${now.bytes > 0 ? "the busiest rank sends " + inBytes(now.bytes) : "nothing is sent"}${crosses}.${sums}`);
  if (progress >= 1 && step === scene.steps.length - 1) caption.append(" Done.");
}

function show(time) {
  walk.time = clamp(time, 0, scene.steps.length);
  const step = clamp(Math.ceil(walk.time) - 1, 0, Math.max(scene.steps.length - 1, 0));
  const progress = scene.steps.length > 0 ? walk.time - step : 0;
  showStage(step, progress);
  byId("playhead").style.left = `calc(${100 * fractionOf(walk.time)}% - 1px)`;
  byId("seek").value = Math.round(1000 * fractionOf(walk.time));
  const moment = `${step} ${progress >= 1}`;
  if (moment !== walk.moment) describe(step, progress);
  walk.moment = moment;
}

function setPlaying(isPlaying) {
  walk.isPlaying = isPlaying;
  byId("play").textContent = isPlaying ? "❚❚" : "▶";
  byId("play").setAttribute("aria-label", isPlaying ? "pause" : "play");
  if (!isPlaying) return;
  if (walk.time >= scene.steps.length) show(0);
  let last = performance.now();
  const frame = (now) => {
    if (!walk.isPlaying) return;
    show(walk.time + Math.max(now - last, 0) / 1000 / kSecondsPerStep);
    last = now;
    if (walk.time >= scene.steps.length) setPlaying(false);
    else requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function go(time) {
  setPlaying(false);
  show(time);
}

function drawTimeline() {
  weighSteps();
  scene.steps.forEach((step, i) => {
    const segment = html("div", { class: "segment", style: `flex: ${walk.weights[i]} 1 0` }, byId("segments"));
    html("b", {}, segment, `${i + 1} ${step.kind}`);
    segment.append(inTime(step.cost_us));
    html("i", { style: `width: ${(100 * step.latency_us) / Math.max(step.cost_us, 1e-9)}%` }, segment);
  });
  byId("legend").textContent =
    scene.ranks > scene.tiles.length
      ? `each tile stands for up to ${Math.max(...scene.tiles.map((tile) => tile.count))} of ${plural(scene.ranks, "rank")} and shows all that they hold; outlined, its first rank's box; click on one to open it`
      : "one tile a rank: the tensor's outline, and the box that the rank holds";
  if (scene.crossing_bytes !== undefined) byId("legend").append("; dashed, the border between hosts");
  byId("seek").addEventListener("input", (event) => go(timeAt(event.target.value / 1000)));
  byId("play").addEventListener("click", () => setPlaying(!walk.isPlaying));
  byId("back").addEventListener("click", () => go(Math.ceil(walk.time) - 1));
  byId("next").addEventListener("click", () => go(Math.floor(walk.time) + 1));
  for (const id of ["play", "back", "next", "seek"]) byId(id).disabled = scene.steps.length === 0;
}
