// A notebook's frame becomes as tall as the page, so that nothing of it is cut off.
function fitFrame() {
  const frame = window.frameElement;
  if (frame?.hasAttribute("srcdoc")) frame.style.height = `${document.querySelector("main").offsetHeight + 1}px`;
}

function drawByWidth() {
  drawEnds();
  drawFlows();
  drawStage();
  drawLoads();
  drawMemory();
  show(walk.time);
  fitFrame();
}

drawHead();
switchTheme();
explainOnHover();
drawTimeline();
openOnClick();
drawOthers();
drawByWidth();

// A page that is not shown yet, as in a notebook's folded cell, has no width.
let drawnWidth = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === drawnWidth) return;
  drawnWidth = document.body.clientWidth;
  drawByWidth();
}).observe(document.body);
