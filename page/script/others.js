// The plans that were looked at, the chosen one first, and why the others lost.
function drawPath(target, text) {
  text.split(/ -(.+?)-> /).forEach((part, i) => {
    if (i % 2 === 0) target.append(part);
    else html("em", {}, target, `${part} →`);
  });
}

function drawAlternative({ name, text, cost_us: us, steps, bytes, peak_bytes: peak, reason }, most, isChosen) {
  const item = html("li", isChosen ? { class: "chosen" } : {}, byId("alternatives"));
  const cost = html("div", { class: "cost" }, item, inTime(us));
  html("i", { style: `width: ${clamp((100 * us) / most, 1, 100)}%` }, html("span", { class: "gauge" }, cost));
  const body = html("div", {}, item);
  const title = html("div", { class: "name" }, body, name);
  html("span", {}, title, `${plural(steps, "step")} · sends ${inBytes(bytes)} · peak ${inBytes(peak)}`);
  drawPath(html("div", { class: "path" }, body), text);
  html("div", { class: "why" }, item, reason);
}

function drawOthers() {
  const most = Math.max(scene.cost_us, ...scene.alternatives.map((other) => other.cost_us), 1e-9);
  byId("others-legend").textContent = `${isAssumed ? "estimates from assumed costs of links, not measured on your machine;" : `priced by the ${scene.topology} topology,`} among ${plural(scene.layouts, "layout")} on the way`;
  drawAlternative({ ...scene, name: "this plan", steps: scene.steps.length, reason: scene.alternatives.length > 0 ? "the cheapest" : "the only one that was worth pricing" }, most, true);
  for (const other of scene.alternatives) drawAlternative(other, most, false);
}
