// The plan as the program wrote it, made ready for drawing: arrays of numbers for each rank.

const plan = JSON.parse(document.getElementById("plan").textContent);

// Columns of an instruction in the data; collectives have BYTES as well, transfers BYTES, PEER and GRADIENT (0 or 1), passes of a
// stage group of several ranks JOINT, an array.
const OP = 0, STREAM = 1, MICRO_BATCH = 2, STAGE = 3, START = 4, DURATION = 5, ACQUIRED = 6, RELEASED = 7, BYTES = 8,
      PEER = 9, GRADIENT = 10;
const JOINT = 8;
const OWN = 0, TENSOR_BYTES = 1, TENSOR_NS = 2, CONTEXT_SENT = 3, CONTEXT_RECEIVED = 4, CONTEXT_NS = 5, CONTEXT_EXPOSED = 6,
      EXPERT_BYTES = 7, EXPERT_NS = 8, EXPERT_EXPOSED = 9;
const COMPUTE = 1, COLLECTIVE = 4;

const OPS = {
  LOAD: {name: "Load"},
  FORWARD: {name: "Forward", letter: "F", shade: "forward"},
  BACKWARD: {name: "Backward", letter: "B", shade: "backward"},
  BACKWARD_INPUT: {name: "Backward, input gradient", letter: "I", shade: "input"},
  BACKWARD_WEIGHT: {name: "Backward, weight gradient", letter: "W", shade: "weight"},
  RECOMPUTE: {name: "Recompute", letter: "R", shade: "forward"},
  SEND: {name: "Send"},
  RECV: {name: "Receive"},
  WAIT: {name: "Wait"},
  FREE: {name: "Free"},
  REDUCE_GRADIENTS: {name: "Reduce gradients", letter: "reduce", whole: true},
  RESHARD: {name: "Reshard", letter: "reshard", whole: true},
  OPTIMIZER_STEP: {name: "Optimizer step", letter: "step", whole: true},
};

function opOf(instruction) {
  const name = plan.ops[instruction[OP]] ?? "op " + instruction[OP];
  return OPS[name] ?? {name};
}

// Instructions of a stream in the order of their starts: those that take time, and those that take none.
function makeLane(rank, stream) {
  const lane = {stream, blocks: [], moments: []};
  rank.instructions.forEach((instruction, id) => {
    if (instruction[STREAM] !== stream) return;
    (instruction[DURATION] > 0 ? lane.blocks : lane.moments).push(id);
  });
  const byStart = (a, b) => rank.instructions[a][START] - rank.instructions[b][START] || a - b;
  lane.blocks.sort(byStart);
  lane.moments.sort(byStart);
  return lane;
}

// The rank's account in the order of its program, which is how the plan is checked: an instruction's bytes are
// taken before it and given back after it. What does not compute stands where the program comes to it.
function accountMemory(rank) {
  const count = rank.instructions.length;
  const account = {before: new Float64Array(count), during: new Float64Array(count), after: new Float64Array(count),
                   times: [0], bytes: [rank.static], peakTime: 0};
  let bytes = rank.static, now = 0;
  rank.instructions.forEach((instruction, id) => {
    const computes = instruction[STREAM] === COMPUTE;
    if (computes) now = Math.max(now, instruction[START]);
    account.before[id] = bytes;
    bytes += instruction[ACQUIRED];
    account.during[id] = bytes;
    if (instruction[ACQUIRED] !== 0) account.times.push(now), account.bytes.push(bytes);
    if (id === rank.peakAt) account.peakTime = now;
    bytes -= instruction[RELEASED];
    account.after[id] = bytes;
    if (computes) now += instruction[DURATION];
    if (instruction[RELEASED] !== 0) account.times.push(now), account.bytes.push(bytes);
  });
  return account;
}

for (const rank of plan.ranks) {
  rank.lanes = [COMPUTE, 2, 3, COLLECTIVE].map(stream => makeLane(rank, stream));
  rank.memory = accountMemory(rank);
}

// Null for all but a pass of a stage group of several ranks.
function jointOf(instruction) {
  return Array.isArray(instruction[JOINT]) ? instruction[JOINT] : null;
}

// Stage groups: ranks that hold a stage together.

const [, , CONTEXTS = 1, TENSORS = 1] = plan.mesh;
const GROUPED = CONTEXTS * TENSORS > 1;

// "c3 t1": context rank and tensor rank, where there are several.
function placeOf(rank) {
  return [CONTEXTS > 1 ? `c${rank.context}` : "", TENSORS > 1 ? `t${rank.tensor}` : ""].filter(word => word !== "").join(" ");
}

// Group by group, whatever the numbers of the ranks are.
const RANKS_IN_ORDER = !GROUPED ? plan.ranks : [...plan.ranks].sort(
    (a, b) => a.replica - b.replica || (a.stages[0] ?? 0) - (b.stages[0] ?? 0) || a.context - b.context || a.tensor - b.tensor);

function inOneGroup(a, b) {
  return a.replica === b.replica && a.stages[0] === b.stages[0];
}

// Of samples[i].
function rowOf(microBatch, i) {
  if (microBatch.rowSamples.length === 0) return i;
  return microBatch.rowSamples.findIndex(end => end > i) - 1;
}

// "c0 to c3": the context ranks that the row is divided over.
function spanText(microBatch, row) {
  const [first, ranks] = microBatch.spans[row] ?? [0, 0];
  return ranks === 0 ? "?" : ranks === 1 ? `c${first}` : `c${first} to c${first + ranks - 1}`;
}

// Tokens of the row on the rank: two chunks of 2k over k context ranks.
function tokensOn(rank, microBatch, row) {
  const [first, ranks] = microBatch.spans[row] ?? [0, 0];
  const at = rank.context - first;
  if (at < 0 || at >= ranks) return 0;
  const [, input, target] = plan.samples[microBatch.samples[row]] ?? [0, 0, 0];
  const length = microBatch.layout === "packed" ? input + target : microBatch.targetLength;
  if (ranks === 1) return length;
  const begin = i => Math.floor(i * length / (2 * ranks));
  return begin(at + 1) - begin(at) + begin(2 * ranks - at) - begin(2 * ranks - 1 - at);
}

// "103 × 1, 2 × 32": so many samples over so many context ranks.
function spansOfPlan() {
  const counts = new Map();
  for (const {microBatches} of plan.replicas)
    for (const microBatch of microBatches)
      microBatch.samples.forEach((_, i) => {
        const ranks = microBatch.spans[rowOf(microBatch, i)]?.[1];
        if (ranks !== undefined) counts.set(ranks, (counts.get(ranks) ?? 0) + 1);
      });
  return [...counts].sort(([a], [b]) => a - b).map(([ranks, count]) => `${withCommas(count)} × ${ranks}`).join(", ");
}

function microBatchOf(rank, instruction) {
  if (opOf(instruction).whole) return null;
  return plan.replicas[rank.replica]?.microBatches[instruction[MICRO_BATCH]] ?? null;
}

// Numbers for people.

function withCommas(number, digits = 0) {
  return number.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

function formatTime(ns) {
  if (ns < 1e4) return withCommas(ns) + " ns";
  if (ns < 1e6) return withCommas(ns / 1e3, 1) + " µs";
  return withCommas(ns / 1e6, ns < 1e8 ? 2 : 1) + " ms";
}

function formatBytes(bytes) {
  const size = Math.abs(bytes);
  if (size >= 1e9) return withCommas(bytes / 1e9, 2) + " GB";
  if (size >= 1e6) return withCommas(bytes / 1e6, 1) + " MB";
  if (size >= 1e3) return withCommas(bytes / 1e3, 1) + " kB";
  return withCommas(bytes) + " B";
}

function formatShare(ratio) {
  return withCommas(100 * ratio, 1) + " %";
}

function plural(count, word) {
  return withCommas(count) + " " + word + (count === 1 ? "" : "s");
}
