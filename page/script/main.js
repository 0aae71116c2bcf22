function drawByWidth() {
  drawEnds();
  drawStage();
  drawLoads();
  drawMemory();
  show(walk.time);
}

drawHead();
switchTheme();
explainOnHover();
drawTimeline();
drawOthers();
drawByWidth();

// A page that is not shown yet, as in a notebook's folded cell, has no width.
let drawnWidth = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === drawnWidth) return;
  drawnWidth = document.body.clientWidth;
  drawByWidth();
}).observe(document.body);
