// Pointer, keys and buttons.

function setHovered(place) {
  if (place?.rank === view.hovered?.rank && place?.id === view.hovered?.id) return;
  view.hovered = place;
  repaint();
}

function choose(place) {
  view.selected = place;
  showSelected();
  repaint();
}

function pointOf(event) {
  const box = canvas.getBoundingClientRect();
  return {x: event.clientX - box.left, y: event.clientY - box.top};
}

let drag = null;

canvas.addEventListener("pointerdown", event => {
  const {x, y} = pointOf(event);
  drag = {x, y, clientX: event.clientX, clientY: event.clientY, begin: view.begin, top: scroller.scrollTop, moved: false};
  canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", event => {
  const {x, y} = pointOf(event);
  if (drag !== null) {
    const right = event.clientX - drag.clientX, down = event.clientY - drag.clientY;
    if (Math.abs(right) + Math.abs(down) > 4) drag.moved = true;
    if (!drag.moved) return;
    canvas.classList.add("moving");
    hideTooltip();
    setWindow(drag.begin - right / plotWidth() * (view.end - view.begin), view.end - view.begin);
    scroller.scrollTop = drag.top - down;
    repaint();
    return;
  }
  const place = instructionAt(x, y);
  const rank = place === null ? rankNameAt(x, y) : null;
  setHovered(place);
  if (place !== null) showTooltip(instructionTooltip(place), event.clientX, event.clientY);
  else if (rank !== null) showTooltip(rankTooltip(rank), event.clientX, event.clientY);
  else hideTooltip();
});

canvas.addEventListener("pointerup", event => {
  if (drag !== null && !drag.moved) choose(instructionAt(drag.x, drag.y));
  drag = null;
  canvas.classList.remove("moving");
});

canvas.addEventListener("pointercancel", () => {
  drag = null;
  canvas.classList.remove("moving");
});

canvas.addEventListener("pointerleave", () => {
  hideTooltip();
  setHovered(null);
});

canvas.addEventListener("dblclick", () => {
  setWindow(0, plan.makespan);
  repaint();
});

canvas.addEventListener("wheel", event => {
  const {x} = pointOf(event);
  if (x < NAMES_WIDTH && !event.ctrlKey) return;
  event.preventDefault();
  hideTooltip();
  // One notch is 100 pixels, or 3 lines.
  const turned = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * 33 : event.deltaY;
  const sideways = event.shiftKey ? turned : event.deltaX;
  if (Math.abs(sideways) > Math.abs(turned) || event.shiftKey) moveBy(sideways / plotWidth() * (view.end - view.begin));
  else zoom(Math.exp(turned * 0.002), Math.max(x, NAMES_WIDTH));
  repaint();
}, {passive: false});

scroller.addEventListener("scroll", repaint);

function zoomAtMiddle(factor) {
  zoom(factor, NAMES_WIDTH + plotWidth() / 2);
  repaint();
}

document.getElementById("zoom-in").addEventListener("click", () => zoomAtMiddle(0.6));
document.getElementById("zoom-out").addEventListener("click", () => zoomAtMiddle(1 / 0.6));
document.getElementById("fit").addEventListener("click", () => {
  setWindow(0, plan.makespan);
  repaint();
});

// Keys.

// All ids of a lane in the order of their starts.
function idsOf(rank, stream) {
  const lane = rank.lanes.find(candidate => candidate.stream === stream);
  if (lane === undefined) return [];
  lane.all ??= [...lane.blocks, ...lane.moments].sort((a, b) => rank.instructions[a][START] - rank.instructions[b][START] || a - b);
  return lane.all;
}

function nearest(rank, ids, ns) {
  let best = null;
  for (const id of ids)
    if (best === null || Math.abs(rank.instructions[id][START] - ns) < Math.abs(rank.instructions[best][START] - ns)) best = id;
  return best;
}

// Lanes that have instructions, from top to bottom.
function shownLanes() {
  return view.rows.flatMap(row => (row.lanes ?? []).map(({lane, y, height}) => ({rank: row.rank, stream: lane.stream, y, height})))
      .filter(({rank, stream}) => idsOf(rank, stream).length > 0);
}

function stepAlongLane(step) {
  if (view.selected === null) return stepToLane(0);
  const {rank, id} = view.selected;
  const ids = idsOf(rank, rank.instructions[id][STREAM]);
  const next = ids[ids.indexOf(id) + step];
  if (next !== undefined) chooseByKey({rank, id: next});
}

function stepToLane(step) {
  const lanes = shownLanes();
  let at = 0, ns = view.begin;
  if (view.selected !== null) {
    const {rank, id} = view.selected;
    at = lanes.findIndex(lane => lane.rank === rank && lane.stream === rank.instructions[id][STREAM]) + step;
    ns = rank.instructions[id][START];
  }
  const lane = lanes[at];
  if (lane !== undefined) chooseByKey({rank: lane.rank, id: nearest(lane.rank, idsOf(lane.rank, lane.stream), ns)});
}

// Brings the instruction into view and shows its facts beside it.
function chooseByKey(place) {
  choose(place);
  const instruction = place.rank.instructions[place.id];
  const span = view.end - view.begin;
  if (instruction[START] < view.begin || instruction[START] > view.end) setWindow(instruction[START] - span / 2, span);
  const lane = shownLanes().find(({rank, stream}) => rank === place.rank && stream === instruction[STREAM]);
  if (lane === undefined) return;
  const visible = view.height - AXIS_HEIGHT;
  if (lane.y < scroller.scrollTop) scroller.scrollTop = lane.y;
  if (lane.y + lane.height > scroller.scrollTop + visible) scroller.scrollTop = lane.y + lane.height - visible;
  const box = canvas.getBoundingClientRect();
  showTooltip(instructionTooltip(place), box.left + xOf(instruction[START]), box.top + yOnCanvas(lane.y + lane.height));
  repaint();
}

const KEYS = {
  ArrowRight: () => stepAlongLane(1),
  ArrowLeft: () => stepAlongLane(-1),
  ArrowDown: () => stepToLane(1),
  ArrowUp: () => stepToLane(-1),
  "+": () => zoomAtMiddle(0.6),
  "=": () => zoomAtMiddle(0.6),
  "-": () => zoomAtMiddle(1 / 0.6),
  a: () => moveBy(-(view.end - view.begin) / 5),
  d: () => moveBy((view.end - view.begin) / 5),
  0: () => setWindow(0, plan.makespan),
  PageDown: () => { scroller.scrollTop += view.height / 2; },
  PageUp: () => { scroller.scrollTop -= view.height / 2; },
  Escape: () => {
    hideTooltip();
    choose(null);
  },
};

canvas.addEventListener("keydown", event => {
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  hideTooltip();
  act();
  repaint();
});

canvas.addEventListener("blur", hideTooltip);

// What is shown.

function resize() {
  layOut();
  // Before the width is read: a scroll bar may come with it.
  document.getElementById("spacer").style.height = view.contentHeight + AXIS_HEIGHT + "px";
  view.width = scroller.clientWidth;
  const most = parseFloat(getComputedStyle(scroller).maxHeight);
  view.height = Math.min(view.contentHeight + AXIS_HEIGHT, most - 2);
  const ratio = devicePixelRatio;
  canvas.width = view.width * ratio;
  canvas.height = view.height * ratio;
  canvas.style.width = view.width + "px";
  canvas.style.height = view.height + "px";
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint();
}

function whenChanged(id, change) {
  const input = document.getElementById(id);
  input.addEventListener("change", () => {
    change(input);
    resize();
  });
}

document.getElementById("show-transfers").checked = view.showTransfers;
document.getElementById("show-memory").checked = view.showMemory;
whenChanged("show-transfers", input => { view.showTransfers = input.checked; });
whenChanged("show-memory", input => { view.showMemory = input.checked; });
whenChanged("replica", input => {
  view.replica = input.value === "" ? null : Number(input.value);
  scroller.scrollTop = 0;
});
document.getElementById("replica").append(
    new Option("all", ""), ...plan.replicas.map((_, index) => new Option(String(index), String(index))));

showHead();
showMeanBar();
showExplanation();
showKinds();
addEventListener("resize", resize);
resize();
