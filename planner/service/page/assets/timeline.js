// The timeline of an iteration on a canvas: for each rank what it computes, as planned and below it as measured.

import {byId, element, setText} from "./dom.js";
import {share, timeOfMicroseconds} from "./format.js";

// Numbers of a block in "blocks", and in "measured".
const OP = 0, MICRO_BATCH = 1, STAGE = 2, START = 3, DURATION = 4, BLOCK = 5;
const MEASURED_BLOCK = 2;
const AXIS = 22, GAP = 4, RIGHT = 8, LEAST_SPAN_US = 10;

const OPS = {
  FORWARD: {name: "forward", letter: "F", shade: "forward"},
  BACKWARD: {name: "backward", letter: "B", shade: "backward"},
  BACKWARD_INPUT: {name: "backward, input gradient", letter: "I", shade: "input"},
  BACKWARD_WEIGHT: {name: "backward, weight gradient", letter: "W", shade: "weight"},
  RECOMPUTE: {name: "recompute", letter: "R", shade: "forward"},
  REDUCE_GRADIENTS: {name: "reduce gradients", letter: "", whole: true},
  RESHARD: {name: "reshard", letter: "", whole: true},
  OPTIMIZER_STEP: {name: "optimizer step", letter: "", whole: true},
};

// `selected`: {rank: index into data.ranks, block}; times in microseconds.
const view = {data: null, begin: 0, end: 1, all: 1, width: 0, selected: null, requested: false, colours: {}};
const canvas = byId("timeline");
const pen = canvas.getContext("2d");

function opOf(number) {
  const name = view.data.ops[number] ?? `op ${number}`;
  return OPS[name] ?? {name, letter: ""};
}

function lanesShown() {
  return ["planned", "measured"].filter(lane => byId(`show-${lane}`).checked);
}

function laneHeight() {
  const ranks = view.data.ranks.length;
  return ranks <= 16 ? 15 : ranks <= 64 ? 9 : 6;
}

function rowHeight() {
  return lanesShown().length * laneHeight() + GAP;
}

function namesWidth() {
  return view.width < 560 ? 40 : 104;
}

function plotWidth() {
  return Math.max(view.width - namesWidth() - RIGHT, 1);
}

function xOf(time) {
  return namesWidth() + (time - view.begin) / (view.end - view.begin) * plotWidth();
}

function blocksOf(rank) {
  return rank.blocks.length / BLOCK;
}

function field(rank, block, which) {
  return rank.blocks[block * BLOCK + which];
}

// [start, duration], or null where it is not known.
function timesOf(rank, block, lane) {
  if (lane === "planned") return [field(rank, block, START), field(rank, block, DURATION)];
  if (rank.measured === undefined || rank.measured[block * MEASURED_BLOCK] < 0) return null;
  return [rank.measured[block * MEASURED_BLOCK], rank.measured[block * MEASURED_BLOCK + 1]];
}

function setWindow(begin, span) {
  span = Math.min(Math.max(span, Math.min(LEAST_SPAN_US, view.all)), view.all);
  view.begin = Math.min(Math.max(begin, 0), view.all - span);
  view.end = view.begin + span;
}

function zoom(factor) {
  const span = view.end - view.begin;
  let middle = view.begin + span / 2;
  const times = view.selected === null ? null : timesOf(view.data.ranks[view.selected.rank], view.selected.block, "planned");
  if (times !== null && times[0] < view.end && times[0] + times[1] > view.begin) middle = times[0] + times[1] / 2;
  setWindow(middle - span * factor / 2, span * factor);
  repaint();
}

// Drawing.

function repaint() {
  if (view.requested) return;
  view.requested = true;
  requestAnimationFrame(() => {
    view.requested = false;
    paint();
  });
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "quiet", "line", "paper", "shade", "idle", "good"]) view.colours[name] = style.getPropertyValue(`--${name}`).trim();
}

function fitCanvas() {
  view.width = byId("timeline-scroll").clientWidth;
  const height = AXIS + (view.data === null ? 0 : view.data.ranks.length * rowHeight());
  const ratio = Math.min(devicePixelRatio, 2);
  if (canvas.width !== Math.round(view.width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(view.width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${view.width}px`;
    canvas.style.height = `${height}px`;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
}

function words(text, x, y, {size = 11, colour = view.colours.quiet, align = "left", weight = 400} = {}) {
  pen.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(text, x, y);
}

function paint() {
  readColours();
  fitCanvas();
  pen.clearRect(0, 0, canvas.width, canvas.height);
  if (view.data === null) return;
  view.data.ranks.forEach((rank, i) => paintRank(rank, i, AXIS + i * rowHeight()));
  paintAxis();
  paintMarks();
}

function paintAxis() {
  const least = (view.end - view.begin) / plotWidth() * 90;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= least);
  for (let time = Math.ceil(view.begin / step) * step; time <= view.end; time += step) {
    pen.fillStyle = view.colours.line;
    pen.fillRect(Math.round(xOf(time)), AXIS - 5, 1, 5);
    words(timeOfMicroseconds(time), xOf(time), AXIS / 2 - 1, {align: xOf(time) > view.width - 45 ? "right" : xOf(time) < namesWidth() + 20 ? "left" : "center"});
  }
}

// Where the lower bound is, and where the plan ends.
function paintMarks() {
  const bottom = AXIS + view.data.ranks.length * rowHeight();
  for (const [time, colour] of [[view.data.lower_bound_us, view.colours.good], [view.data.planned_us, view.colours.ink]]) {
    if (time <= 0 || xOf(time) < namesWidth() || xOf(time) > view.width) continue;
    pen.save();
    pen.strokeStyle = colour;
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(xOf(time), AXIS);
    pen.lineTo(xOf(time), bottom);
    pen.stroke();
    pen.restore();
  }
}

function nameOf(rank) {
  if (view.width < 560) return String(rank.rank);
  // In a stage group: "63 · s1 c31 t1".
  if (rank.place !== undefined) return `${rank.rank} · s${rank.stages.join(",")} ${rank.place}`;
  return `rank ${rank.rank} · ${rank.stages.length === 1 ? "stage" : "stages"} ${rank.stages.join(",")}`;
}

function paintRank(rank, index, top) {
  const height = laneHeight();
  const names = rowHeight() >= 14 || index % 2 === 0;
  if (names) words(nameOf(rank), 4, top + (rowHeight() - GAP) / 2, {size: Math.min(11, rowHeight() - 1)});
  lanesShown().forEach((lane, i) => paintLane(rank, index, lane, top + i * height, height - 1));
  const next = view.data.ranks[index + 1];
  if (next !== undefined && next.replica !== rank.replica) {
    pen.fillStyle = view.colours.quiet;
    pen.fillRect(0, top + rowHeight() - GAP / 2, view.width, 1);
  } else if (next !== undefined && next.place !== undefined && next.stages[0] !== rank.stages[0]) {
    pen.fillStyle = view.colours.line;
    pen.fillRect(0, top + rowHeight() - GAP / 2, view.width, 1);
  }
}

function paintLane(rank, index, lane, top, height) {
  pen.fillStyle = lane === "measured" && rank.measured === undefined ? view.colours.shade : view.colours.idle;
  pen.fillRect(namesWidth(), top, plotWidth(), height);
  pen.save();
  pen.beginPath();
  pen.rect(namesWidth(), top - 1, plotWidth(), height + 2);
  pen.clip();
  // Blocks narrower than a pixel share one.
  let painted = -1;
  for (let block = 0; block < blocksOf(rank); ++block) {
    const times = timesOf(rank, block, lane);
    if (times === null || times[0] > view.end || times[0] + times[1] < view.begin) continue;
    const selected = view.selected !== null && view.selected.rank === index && view.selected.block === block;
    const left = xOf(times[0]), right = xOf(times[0] + times[1]);
    if (right < painted && !selected) continue;
    const narrow = right - left < 1;
    paintBlock(rank, block, narrow ? Math.floor(left) : left, top, narrow ? 1 : right - left, height, selected);
    painted = narrow ? Math.floor(left) + 1 : right;
  }
  pen.restore();
}

// colours.js, which the page of `penstock plan --html` draws with, too.
function styleOf(rank, block) {
  const op = opOf(field(rank, block, OP));
  if (op.shade === undefined) return {colour: WHOLE_ITERATION_COLOUR, ink: "#ffffff", text: op.letter};
  const microBatch = field(rank, block, MICRO_BATCH);
  return {colour: colourOf(microBatch, op.shade), ink: SHADES[op.shade].ink, text: `${op.letter}${microBatch}`};
}

function paintBlock(rank, block, x, top, width, height, selected) {
  const style = styleOf(rank, block);
  pen.fillStyle = style.colour;
  pen.fillRect(x, top, width > 3 ? width - 0.7 : width, height);
  if (height >= 12 && width > 8 + 6 * style.text.length) words(style.text, x + width / 2, top + height / 2 + 0.5, {size: 10, colour: style.ink, align: "center", weight: 600});
  if (!selected) return;
  pen.strokeStyle = view.colours.ink;
  pen.lineWidth = 2;
  pen.strokeRect(x, top, Math.max(width, 2), height);
}

// Choosing a block.

function describe({rank: index, block}) {
  const rank = view.data.ranks[index], op = opOf(field(rank, block, OP));
  const what = op.whole ? op.name : `${op.name} of micro-batch ${field(rank, block, MICRO_BATCH)}, stage ${field(rank, block, STAGE)}`;
  const [start, duration] = timesOf(rank, block, "planned");
  const measured = timesOf(rank, block, "measured");
  const took = measured === null ? "not measured" :
      `measured ${timeOfMicroseconds(measured[1])} from ${timeOfMicroseconds(measured[0])}` + (duration > 0 ? ` (${share(measured[1] / duration)} of the plan)` : "");
  const place = rank.place === undefined ? "" : ` (${rank.place})`;
  return `Rank ${rank.rank}${place}, replica ${rank.replica}: ${what}; planned ${timeOfMicroseconds(duration)} from ${timeOfMicroseconds(start)}; ${took}.`;
}

function select(selected) {
  view.selected = selected;
  setText(byId("timeline-selected"), selected === null ? "Click a block, or move with the arrow keys, to read its times." : describe(selected));
  repaint();
}

// Brings what was chosen by key into view.
function reveal() {
  const {rank, block} = view.selected;
  const [start, duration] = timesOf(view.data.ranks[rank], block, "planned");
  if (start + duration < view.begin || start > view.end) setWindow(start + duration / 2 - (view.end - view.begin) / 2, view.end - view.begin);
  const scroller = byId("timeline-scroll"), top = AXIS + rank * rowHeight();
  if (top < scroller.scrollTop) scroller.scrollTop = top - AXIS;
  if (top + rowHeight() > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + rowHeight() - scroller.clientHeight;
}

function nearestBlock(rank, time) {
  let best = 0;
  for (let block = 1; block < blocksOf(rank); ++block)
    if (Math.abs(field(rank, block, START) - time) < Math.abs(field(rank, best, START) - time)) best = block;
  return best;
}

function move(blocks, ranks) {
  if (view.data === null || view.data.ranks.length === 0) return;
  if (view.selected === null) {
    if (blocksOf(view.data.ranks[0]) > 0) select({rank: 0, block: nearestBlock(view.data.ranks[0], view.begin)});
    return;
  }
  const {rank, block} = view.selected;
  const to = Math.min(Math.max(rank + ranks, 0), view.data.ranks.length - 1), target = view.data.ranks[to];
  if (blocksOf(target) === 0) return;
  const next = ranks === 0 ? Math.min(Math.max(block + blocks, 0), blocksOf(target) - 1) : nearestBlock(target, field(view.data.ranks[rank], block, START));
  select({rank: to, block: next});
  reveal();
}

function blockAt(x, y) {
  const index = Math.floor((y - AXIS) / rowHeight());
  const rank = view.data?.ranks[index];
  if (rank === undefined || y < AXIS || x < namesWidth()) return null;
  const lanes = lanesShown();
  const lane = lanes[Math.min(Math.floor((y - AXIS - index * rowHeight()) / laneHeight()), lanes.length - 1)];
  const time = view.begin + (x - namesWidth()) / plotWidth() * (view.end - view.begin);
  // As wide as a fingertip's aim allows.
  const slack = 3 / plotWidth() * (view.end - view.begin);
  for (let block = 0; block < blocksOf(rank); ++block) {
    const times = timesOf(rank, block, lane);
    if (times !== null && time >= times[0] - slack && time <= times[0] + times[1] + slack) return {rank: index, block};
  }
  return null;
}

let drag = null;

function onPointerDown(event) {
  drag = {x: event.clientX, y: event.clientY, begin: view.begin, moved: false};
}

function onPointerMove(event) {
  if (drag === null || event.buttons === 0) return;
  if (Math.abs(event.clientX - drag.x) > 4) drag.moved = true;
  if (!drag.moved) return;
  setWindow(drag.begin - (event.clientX - drag.x) / plotWidth() * (view.end - view.begin), view.end - view.begin);
  repaint();
}

function onPointerUp(event) {
  const moved = drag === null || drag.moved || Math.abs(event.clientY - drag.y) > 8;
  drag = null;
  if (moved) return;
  const box = canvas.getBoundingClientRect();
  select(blockAt(event.clientX - box.left, event.clientY - box.top));
}

const KEYS = {
  ArrowLeft: () => move(-1, 0),
  ArrowRight: () => move(1, 0),
  ArrowUp: () => move(0, -1),
  ArrowDown: () => move(0, 1),
  "+": () => zoom(0.6),
  "=": () => zoom(0.6),
  "-": () => zoom(1 / 0.6),
  0: () => showAll(),
  Escape: () => select(null),
};

function onKey(event) {
  const act = KEYS[event.key];
  if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
}

function showAll() {
  setWindow(0, view.all);
  repaint();
}

// What the page calls.

function showLegend() {
  const used = new Set(view.data.ranks.flatMap(rank => rank.blocks.filter((_, i) => i % BLOCK === OP)));
  // What is of no micro-batch comes last.
  const wholeness = number => Number(opOf(number).whole ?? false);
  const entries = [...used].sort((a, b) => wholeness(a) - wholeness(b) || a - b).map(number => {
    const op = opOf(number), swatch = element("i");
    swatch.style.background = op.shade === undefined ? WHOLE_ITERATION_COLOUR : colourOf(0, op.shade);
    return element("li", [swatch, op.letter === "" ? op.name : `${op.letter} ${op.name}`]);
  });
  for (const [name, kind] of [["lower bound", "bound"], ["end of the plan", "end"]])
    entries.push(element("li", [element("i", [], {class: `line ${kind}`}), name]));
  byId("legend").replaceChildren(...entries);
}

// `data`: the answer to data/iteration. The window stays where it is while the iterations are about as long; what was chosen is let
// go, because another iteration has other blocks.
export function showTimeline(data) {
  const whole = view.data === null || (view.begin === 0 && view.end === view.all);
  const sameIteration = view.data !== null && view.data.iteration === data.iteration && view.data.ranks.length === data.ranks.length;
  view.data = data;
  view.all = Math.max(data.planned_us, data.measured_us ?? 0, 1);
  if (whole) setWindow(0, view.all);
  else setWindow(view.begin, view.end - view.begin);
  showLegend();
  select(sameIteration ? view.selected : null);
  canvas.setAttribute("aria-label", `Timeline of ${data.ranks.length} ranks in iteration ${data.iteration}, planned ${timeOfMicroseconds(data.planned_us)}, ` +
      `measured ${data.measured_us === null ? "not yet" : timeOfMicroseconds(data.measured_us)}`);
}

export function clearTimeline() {
  view.data = null;
  select(null);
  byId("legend").replaceChildren();
  canvas.setAttribute("aria-label", "Timeline of the ranks: nothing to show");
}

export function connectTimeline() {
  canvas.addEventListener("pointerdown", onPointerDown);
  canvas.addEventListener("pointermove", onPointerMove);
  canvas.addEventListener("pointerup", onPointerUp);
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("keydown", onKey);
  byId("zoom-in").addEventListener("click", () => zoom(0.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  byId("fit").addEventListener("click", showAll);
  for (const lane of ["planned", "measured"]) byId(`show-${lane}`).addEventListener("change", repaint);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  new ResizeObserver(repaint).observe(byId("timeline-scroll"));
}
