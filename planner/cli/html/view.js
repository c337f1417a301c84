// What is shown: which rows, and which part of the time.

const AXIS_HEIGHT = 24, REPLICA_HEIGHT = 24, COMPUTE_HEIGHT = 28, LINK_HEIGHT = 10, MEMORY_HEIGHT = 42,
      LANE_GAP = 2, RANK_GAP = 9, NAMES_WIDTH = 226, RIGHT_MARGIN = 12;
// Room for a rank's name, bar and memory beside its lanes.
const LEAST_RANK_HEIGHT = 50;
// Stage groups: a heading, and rows of ranks that show nothing but what they compute.
const GROUP_HEIGHT = 20, COMPACT_HEIGHT = 14, COMPACT_GAP = 2;
// With more ranks in groups than these the page begins compact.
const MOST_TALL_RANKS = 16;
const BEGINS_COMPACT = GROUPED && plan.ranks.length > MOST_TALL_RANKS;
// A cause that there is not in other plans.
const SHOWN_PARTS = TIME_PARTS.filter(part => GROUPED || part.name !== "stage group");
// Nothing in a plan is shorter than a nanosecond.
const LEAST_SPAN_NS = 100;

const view = {
  begin: 0,
  end: Math.max(plan.makespan, 1),
  width: 0,
  height: 0,
  replica: null,
  showTransfers: !BEGINS_COMPACT,
  showMemory: !BEGINS_COMPACT,
  rows: [],
  contentHeight: 0,
  // {rank, id} of the instruction under the pointer, and of the one that was chosen.
  hovered: null,
  selected: null,
};

const scroller = document.getElementById("scroller");

function plotWidth() {
  return Math.max(view.width - NAMES_WIDTH - RIGHT_MARGIN, 1);
}

function xOf(ns) {
  return NAMES_WIDTH + (ns - view.begin) / (view.end - view.begin) * plotWidth();
}

function timeAt(x) {
  return view.begin + (x - NAMES_WIDTH) / plotWidth() * (view.end - view.begin);
}

function setWindow(begin, span) {
  const all = Math.max(plan.makespan, 1);
  span = Math.min(Math.max(span, Math.min(LEAST_SPAN_NS, all)), all);
  view.begin = Math.min(Math.max(begin, 0), all - span);
  view.end = view.begin + span;
}

// The time under x stays where it is.
function zoom(factor, x) {
  const span = (view.end - view.begin) * factor;
  const ns = timeAt(x);
  setWindow(ns - (x - NAMES_WIDTH) / plotWidth() * span, span);
}

function moveBy(ns) {
  setWindow(view.begin + ns, view.end - view.begin);
}

// Rows from top to bottom, in pixels from the top of the content.
function layOut() {
  view.rows = [];
  let y = 0;
  let replica = null, before = null;
  for (const rank of RANKS_IN_ORDER) {
    if (view.replica !== null && rank.replica !== view.replica) continue;
    if (rank.replica !== replica) {
      replica = rank.replica;
      view.rows.push({y, height: REPLICA_HEIGHT, replica});
      y += REPLICA_HEIGHT;
    }
    if (GROUPED && (before === null || !inOneGroup(before, rank))) {
      view.rows.push({y, height: GROUP_HEIGHT, group: plan.ranks.filter(other => inOneGroup(other, rank))});
      y += GROUP_HEIGHT;
    }
    before = rank;
    const row = isCompact() ? layOutCompactRank(rank, y) : layOutRank(rank, y);
    view.rows.push(row);
    y += row.height;
  }
  view.contentHeight = y;
}

function isCompact() {
  return GROUPED && !view.showTransfers && !view.showMemory;
}

function layOutCompactRank(rank, y) {
  const lane = rank.lanes.find(candidate => candidate.stream === COMPUTE);
  return {y, rank, lanes: [{lane, y, height: COMPACT_HEIGHT}], memory: null, compact: true, height: COMPACT_HEIGHT + COMPACT_GAP};
}

function layOutRank(rank, y) {
  const row = {y, rank, lanes: [], memory: null};
  let bottom = y + 3;
  for (const lane of rank.lanes) {
    if (lane.stream !== COMPUTE && !view.showTransfers) continue;
    const height = lane.stream === COMPUTE ? COMPUTE_HEIGHT : LINK_HEIGHT;
    row.lanes.push({lane, y: bottom, height});
    bottom += height + LANE_GAP;
  }
  if (view.showMemory) {
    row.memory = {y: bottom + 2, height: MEMORY_HEIGHT};
    bottom += MEMORY_HEIGHT + 2;
  }
  row.height = Math.max(bottom - y, LEAST_RANK_HEIGHT) + RANK_GAP;
  return row;
}

function visibleRows() {
  const top = scroller.scrollTop, bottom = top + view.height;
  return view.rows.filter(row => row.y + row.height > top && row.y < bottom);
}

// Where the content's y is on the canvas.
function yOnCanvas(y) {
  return y - scroller.scrollTop + AXIS_HEIGHT;
}

// Index of the first id in `ids` whose instruction ends after `ns`. Instructions of a stream do not overlap.
function firstEndingAfter(rank, ids, ns) {
  let low = 0, high = ids.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const instruction = rank.instructions[ids[middle]];
    if (instruction[START] + instruction[DURATION] > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Moments (WAIT, LOAD, FREE) are shown once they are this many pixels apart on average.
const MOMENT_PIXELS = 5;

function showsMoments(lane) {
  const pixels = plan.makespan / (view.end - view.begin) * plotWidth();
  return lane.stream === COMPUTE && lane.moments.length * MOMENT_PIXELS < pixels;
}

// The instruction drawn at a point of the canvas, or null.
function instructionAt(x, y) {
  if (x < NAMES_WIDTH || y < AXIS_HEIGHT) return null;
  for (const row of visibleRows()) {
    for (const {lane, y: top, height} of row.lanes ?? []) {
      const above = y - yOnCanvas(top);
      if (above < 0 || above >= height + LANE_GAP) continue;
      const moment = above > height - MOMENT_HEIGHT ? momentAt(row.rank, lane, x) : null;
      return moment ?? blockAt(row.rank, lane, x);
    }
  }
  return null;
}

function blockAt(rank, lane, x) {
  const TOLERANCE = 2;
  const first = firstEndingAfter(rank, lane.blocks, timeAt(x - TOLERANCE));
  if (first === lane.blocks.length) return null;
  const id = lane.blocks[first];
  return rank.instructions[id][START] <= timeAt(x + TOLERANCE) ? {rank, id} : null;
}

function momentAt(rank, lane, x) {
  if (!showsMoments(lane)) return null;
  const first = firstEndingAfter(rank, lane.moments, timeAt(x - 3));
  if (first === lane.moments.length) return null;
  const id = lane.moments[first];
  return rank.instructions[id][START] <= timeAt(x + 3) ? {rank, id} : null;
}

// The rank whose name is at a point of the canvas, or null.
function rankNameAt(x, y) {
  if (x >= NAMES_WIDTH || y < AXIS_HEIGHT) return null;
  return visibleRows().find(row => row.rank && y >= yOnCanvas(row.y) && y < yOnCanvas(row.y + row.height))?.rank ?? null;
}
