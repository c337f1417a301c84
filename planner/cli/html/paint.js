// Draws the visible part of the view.

const canvas = document.getElementById("timeline");
const pen = canvas.getContext("2d");
const MOMENT_HEIGHT = 5;
const FAINT = 0.18;
const FONT = getComputedStyle(document.body).fontFamily;
const INK = "#1d2733", QUIET = "#5b6875", LINE = "#d9dee4", SHADE = "#f4f6f8", BUBBLE = "#e8ecf0", PAPER = "#ffffff";
const LANE_NAMES = {1: "compute", 2: "previous", 3: "next", 4: "collective"};

// Thin diagonal lines over a block.
const hatch = (() => {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const lines = tile.getContext("2d");
  lines.strokeStyle = "rgb(29 39 51 / 32%)";
  lines.beginPath();
  for (const offset of [-6, 0, 6]) lines.moveTo(offset, 6), lines.lineTo(offset + 6, 0);
  lines.stroke();
  return pen.createPattern(tile, "repeat");
})();

let paintRequested = false;

function repaint() {
  if (paintRequested) return;
  paintRequested = true;
  requestAnimationFrame(() => {
    paintRequested = false;
    paint();
  });
}

function text(words, x, y, {size = 12, colour = INK, weight = 400, align = "left"} = {}) {
  pen.font = `${weight} ${size}px ${FONT}`;
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(words, x, y);
}

// Cut with an ellipsis at `width` pixels.
function textWithin(words, x, y, width, style) {
  pen.font = `${style.weight ?? 400} ${style.size ?? 12}px ${FONT}`;
  let cut = words;
  while (cut.length > 1 && pen.measureText(cut).width > width) cut = cut.slice(0, -2) + "…";
  text(cut, x, y, style);
}

function paint() {
  pen.clearRect(0, 0, view.width, view.height);
  for (const row of visibleRows()) row.rank ? paintRank(row) : row.group ? paintGroup(row) : paintReplica(row);
  paintPlotEdge();
  paintMarkers();
  paintAxis();
}

function clipToPlot() {
  pen.save();
  pen.beginPath();
  pen.rect(NAMES_WIDTH, AXIS_HEIGHT, plotWidth() + 1, view.height);
  pen.clip();
}

function paintPlotEdge() {
  pen.fillStyle = LINE;
  pen.fillRect(NAMES_WIDTH - 1, AXIS_HEIGHT, 1, view.height);
}

function vertical(ns, colour, dash) {
  const x = Math.round(xOf(ns)) + 0.5;
  if (x < NAMES_WIDTH || x > view.width - RIGHT_MARGIN + 1) return;
  pen.save();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(x, AXIS_HEIGHT);
  pen.lineTo(x, Math.min(view.height, yOnCanvas(view.contentHeight)));
  pen.stroke();
  pen.restore();
}

function paintMarkers() {
  if (plan.lowerBound > 0) vertical(plan.lowerBound, LOWER_BOUND_COLOUR, [6, 4]);
  if (plan.lastBackward > 0) vertical(plan.lastBackward, LAST_BACKWARD_COLOUR, [2, 3]);
}

// Steps of 1, 2 or 5 times a power of ten, at least 90 pixels apart.
function tickStep() {
  const least = (view.end - view.begin) / plotWidth() * 90;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find(factor => factor * power >= least);
}

function paintAxis() {
  pen.fillStyle = PAPER;
  pen.fillRect(0, 0, view.width, AXIS_HEIGHT);
  pen.fillStyle = LINE;
  pen.fillRect(0, AXIS_HEIGHT - 1, view.width, 1);
  const step = tickStep();
  const digits = Math.max(0, Math.ceil(-Math.log10(step / 1e6) - 1e-9));
  text("milliseconds", NAMES_WIDTH - 8, AXIS_HEIGHT / 2, {size: 11, colour: QUIET, align: "right"});
  for (let ns = Math.ceil(view.begin / step) * step; ns <= view.end; ns += step) {
    const x = xOf(ns);
    pen.fillStyle = "#9aa5b1";
    pen.fillRect(Math.round(x), AXIS_HEIGHT - 6, 1, 5);
    const align = x > view.width - 40 ? "right" : x < NAMES_WIDTH + 20 ? "left" : "center";
    text(withCommas(ns / 1e6, digits), x, AXIS_HEIGHT / 2 - 2, {size: 11, colour: QUIET, align});
  }
}

function paintReplica(row) {
  const top = yOnCanvas(row.y);
  pen.fillStyle = SHADE;
  pen.fillRect(0, top, view.width, row.height - 2);
  const microBatches = plan.replicas[row.replica]?.microBatches ?? [];
  const samples = microBatches.reduce((sum, m) => sum + m.samples.length, 0);
  const tokens = microBatches.reduce((sum, m) => sum + m.realTokens, 0);
  text(`Replica ${row.replica}`, 10, top + row.height / 2 - 1, {weight: 650});
  text(`${plural(microBatches.length, "micro-batch").replace("batchs", "batches")}, ${plural(samples, "sample")}, ${plural(tokens, "token")}`,
       NAMES_WIDTH + 6, top + row.height / 2 - 1, {colour: QUIET});
}

// Ranks by number where they follow each other: "ranks 0 to 63".
function numbersOf(ranks) {
  const numbers = ranks.map(rank => rank.rank).sort((a, b) => a - b);
  const follow = numbers.every((number, i) => number === numbers[0] + i);
  return follow && numbers.length > 2 ? `ranks ${numbers[0]} to ${numbers.at(-1)}` : `ranks ${numbers.join(", ")}`;
}

function paintGroup(row) {
  const middle = yOnCanvas(row.y) + row.height / 2;
  const stages = row.group[0].stages;
  const name = stages.length === 1 ? `Stage ${stages[0]}` : `Stages ${stages.join(", ")}`;
  textWithin(`${name} · ${numbersOf(row.group)}`, 10, middle, NAMES_WIDTH - 20, {weight: 600, size: 11.5});
  const waited = row.group.reduce((sum, rank) => sum + rank.bubble[6], 0) / Math.max(plan.makespan * row.group.length, 1);
  const shape = [CONTEXTS > 1 ? plural(CONTEXTS, "context rank") : "", TENSORS > 1 ? plural(TENSORS, "tensor rank") : ""];
  text(`${shape.filter(word => word !== "").join(" × ")}; they wait for each other inside passes for ${formatShare(waited)} of the time`,
       NAMES_WIDTH + 6, middle, {size: 11, colour: QUIET});
}

function paintRank(row) {
  if (row.compact) paintCompactName(row);
  else paintName(row);
  clipToPlot();
  for (const lane of row.lanes) paintLane(row.rank, lane);
  if (row.memory) paintMemory(row.rank, row.memory);
  pen.restore();
  if (row.compact) return;
  pen.fillStyle = LINE;
  pen.fillRect(0, yOnCanvas(row.y + row.height) - 4, view.width, 1);
}

// Name and bar of a rank in one line.
function paintCompactName(row) {
  const rank = row.rank, top = yOnCanvas(row.y), middle = top + COMPACT_HEIGHT / 2;
  text(placeOf(rank), 20, middle, {size: 11, weight: 600});
  text(`rank ${rank.rank}`, 80, middle, {size: 11, colour: QUIET});
  paintBar(rank, 142, middle - 3, NAMES_WIDTH - 152, 6);
}

// Where the rank's time goes.
function paintBar(rank, x, top, width, height) {
  for (const part of SHOWN_PARTS) {
    const wide = plan.makespan > 0 ? part.of(rank) / plan.makespan * width : 0;
    pen.fillStyle = part.colour;
    pen.fillRect(x, top, wide, height);
    x += wide;
  }
}

function paintName(row) {
  const rank = row.rank, top = yOnCanvas(row.y);
  const width = NAMES_WIDTH - 76;
  const stages = rank.stages.length === 0 ? "" : ` · stage ${rank.stages.join(", ")}`;
  // The heading of a group says its stages.
  textWithin(GROUPED ? `${placeOf(rank)} · rank ${rank.rank}` : `Rank ${rank.rank}${stages}`, 10, top + 11, width, {weight: 600});
  paintBar(rank, 10, top + 20, width - 6, 8);
  const peak = `${formatBytes(rank.peak)}${rank.limit > 0 ? " of " + formatBytes(rank.limit) : ""}`;
  textWithin(peak, 10, top + 38, width, {size: 11, colour: QUIET});
  const caption = {size: 9.5, colour: QUIET, align: "right"};
  for (const {lane, y, height} of row.lanes)
    text(LANE_NAMES[lane.stream], NAMES_WIDTH - 8, yOnCanvas(y) + height / 2, caption);
  if (row.memory) text("memory", NAMES_WIDTH - 8, yOnCanvas(row.memory.y) + MEMORY_HEIGHT / 2, caption);
}

// How a block looks: {colour, ink, hatched, words}.
function styleOf(instruction) {
  const op = opOf(instruction);
  if (op.whole) return {colour: WHOLE_ITERATION_COLOUR, ink: "#ffffff", words: op.letter};
  if (op.shade) {
    const {ink, hatched} = SHADES[op.shade];
    return {colour: colourOf(instruction[MICRO_BATCH], op.shade), ink, hatched, words: op.letter + instruction[MICRO_BATCH]};
  }
  return {colour: colourOf(instruction[MICRO_BATCH], instruction[GRADIENT] ? "backward" : "forward")};
}

// Those of other micro-batches step back while one is chosen.
function isFaint(rank, instruction) {
  if (view.selected === null) return false;
  const chosen = view.selected.rank.instructions[view.selected.id];
  if (opOf(chosen).whole) return false;
  return rank.replica !== view.selected.rank.replica || opOf(instruction).whole || instruction[MICRO_BATCH] !== chosen[MICRO_BATCH];
}

function isAt(place, rank, id) {
  return place !== null && place.rank === rank && place.id === id;
}

function paintLane(rank, {lane, y, height}) {
  const top = yOnCanvas(y);
  pen.fillStyle = lane.stream === COMPUTE ? BUBBLE : SHADE;
  pen.fillRect(NAMES_WIDTH, top, plotWidth(), height);
  // Blocks narrower than a pixel share one.
  let painted = -1;
  for (let i = firstEndingAfter(rank, lane.blocks, view.begin); i < lane.blocks.length; ++i) {
    const instruction = rank.instructions[lane.blocks[i]];
    if (instruction[START] >= view.end) break;
    const left = xOf(instruction[START]), right = xOf(instruction[START] + instruction[DURATION]);
    if (right < painted) continue;
    paintBlock(rank, lane.blocks[i], left, top, Math.max(right - left, 1), height);
    painted = Math.max(right, left + 1);
  }
  if (showsMoments(lane)) paintMoments(rank, lane, top + height);
}

function paintBlock(rank, id, left, top, width, height) {
  const instruction = rank.instructions[id];
  const style = styleOf(instruction);
  const inset = width > 3 ? 0.5 : 0;
  pen.globalAlpha = isFaint(rank, instruction) ? FAINT : 1;
  pen.fillStyle = style.colour;
  pen.fillRect(left + inset, top, width - 2 * inset, height);
  if (style.hatched && width > 3) {
    pen.fillStyle = hatch;
    pen.fillRect(left + inset, top, width - 2 * inset, height);
  }
  paintWaitOfGroup(instruction, left, top, width, height);
  if (height >= COMPACT_HEIGHT) paintWords(rank, instruction, style, left, top, width, height);
  pen.globalAlpha = 1;
  if (isAt(view.hovered, rank, id) || isAt(view.selected, rank, id)) {
    pen.strokeStyle = INK;
    pen.lineWidth = 2;
    pen.strokeRect(left, top, Math.max(width, 2), height);
  }
}

// The end of a joint pass, in which the rank waits for the slowest of its group, is paler.
function paintWaitOfGroup(instruction, left, top, width, height) {
  const joint = jointOf(instruction);
  if (joint === null || instruction[DURATION] <= 0) return;
  const waits = Math.max(0, 1 - joint[OWN] / instruction[DURATION]) * width;
  pen.fillStyle = "rgb(255 255 255 / 72%)";
  pen.fillRect(left + width - waits, top, waits, height);
}

// "F3", with its stage where the rank has several: "F3/2"; where there is no room for it "3".
function paintWords(rank, instruction, style, left, top, width, height) {
  if (!style.words) return;
  // The part of the block that is on the canvas.
  const from = Math.max(left, NAMES_WIDTH), to = Math.min(left + width, view.width - RIGHT_MARGIN);
  const several = rank.stages.length > 1 && !opOf(instruction).whole;
  pen.font = `600 11px ${FONT}`;
  const choices = [style.words];
  if (several) choices.unshift(`${style.words}/${instruction[STAGE]}`);
  if (!opOf(instruction).whole) choices.push(String(instruction[MICRO_BATCH]));
  for (const words of choices) {
    if (pen.measureText(words).width + 3 > to - from) continue;
    text(words, (from + to) / 2, top + height / 2, {size: 11, weight: 600, colour: style.ink, align: "center"});
    return;
  }
}

function paintMoments(rank, lane, bottom) {
  for (let i = firstEndingAfter(rank, lane.moments, view.begin); i < lane.moments.length; ++i) {
    const id = lane.moments[i];
    const ns = rank.instructions[id][START];
    if (ns > view.end) break;
    const marked = isAt(view.hovered, rank, id) || isAt(view.selected, rank, id);
    pen.globalAlpha = isFaint(rank, rank.instructions[id]) ? FAINT : 1;
    pen.fillStyle = INK;
    pen.fillRect(Math.round(xOf(ns)) - (marked ? 1 : 0), bottom - MOMENT_HEIGHT, marked ? 3 : 1, MOMENT_HEIGHT);
  }
  pen.globalAlpha = 1;
}

// Bytes over time as steps; what is always there is darker.
function paintMemory(rank, {y, height}) {
  const top = yOnCanvas(y), bottom = top + height;
  const highest = Math.max(rank.limit, rank.peak, 1) * 1.06;
  const yOf = bytes => bottom - bytes / highest * height;
  pen.fillStyle = SHADE;
  pen.fillRect(NAMES_WIDTH, top, plotWidth(), height);
  pen.fillStyle = "#bcd0e6";
  fillSteps(rank.memory, yOf, bottom);
  pen.fillStyle = "#8fb0d3";
  pen.fillRect(NAMES_WIDTH, yOf(rank.static), plotWidth(), bottom - yOf(rank.static));
  if (rank.limit > 0) {
    pen.fillStyle = LIMIT_COLOUR;
    for (let x = NAMES_WIDTH; x < view.width - RIGHT_MARGIN; x += 8) pen.fillRect(x, Math.round(yOf(rank.limit)), 5, 1);
  }
  const x = xOf(rank.memory.peakTime);
  if (x < NAMES_WIDTH) return;
  pen.fillStyle = INK;
  pen.beginPath();
  pen.arc(x, yOf(rank.peak), 3, 0, 2 * Math.PI);
  pen.fill();
  const left = x > view.width - RIGHT_MARGIN - 90;
  text(formatBytes(rank.peak), x + (left ? -6 : 6), yOf(rank.peak) + (yOf(rank.peak) < top + 8 ? 7 : 0),
       {size: 10, align: left ? "right" : "left"});
}

function fillSteps(memory, yOf, bottom) {
  const {times, bytes} = memory;
  // The last step that begins before the window.
  let i = 0, high = times.length;
  while (i < high) {
    const middle = (i + high) >> 1;
    if (times[middle] <= view.begin) i = middle + 1;
    else high = middle;
  }
  i = Math.max(i - 1, 0);
  pen.beginPath();
  pen.moveTo(NAMES_WIDTH, bottom);
  let level = yOf(bytes[i]);
  pen.lineTo(NAMES_WIDTH, level);
  for (++i; i < times.length && times[i] <= view.end; ++i) {
    const x = xOf(times[i]);
    pen.lineTo(x, level);
    level = yOf(bytes[i]);
    pen.lineTo(x, level);
  }
  pen.lineTo(NAMES_WIDTH + plotWidth(), level);
  pen.lineTo(NAMES_WIDTH + plotWidth(), bottom);
  pen.fill();
}
