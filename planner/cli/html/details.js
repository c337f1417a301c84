// What the page says in words: head, legends, tooltip and the chosen instruction. Every text from the plan
// goes through textContent.

function element(tag, content, attributes = {}) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of Array.isArray(content) ? content : [content]) node.append(child);
  return node;
}

function facts(pairs) {
  const list = element("dl", [], {class: "facts"});
  for (const [name, value] of pairs) list.append(element("dt", name), element("dd", value));
  return list;
}

function shapeOf(microBatch) {
  if (microBatch.layout === "packed") return "packed";
  const length = microBatch.sourceLength > 0 ? `${microBatch.sourceLength} + ${microBatch.targetLength}` : microBatch.targetLength;
  return `${microBatch.layout}, ${microBatch.rows} × ${length} tokens`;
}

function recomputeOf(microBatch, stage) {
  const [selective, full] = microBatch.recompute[stage] ?? [0, 0];
  const parts = [];
  if (full > 0) parts.push(`${plural(full, "layer")} in full`);
  if (selective > 0) parts.push(`${plural(selective, "layer")} selectively`);
  return parts.length === 0 ? "none" : parts.join(", ");
}

// "12 (id 812), 13 (id 40)": indices into the batch, and ids in the dataset.
function samplesOf(microBatch, most) {
  const named = microBatch.samples.slice(0, most).map(index => {
    const sample = plan.samples[index];
    return sample === undefined ? `${index}` : `${index} (id ${sample[0]})`;
  });
  const left = microBatch.samples.length - named.length;
  if (named.length === 0) return withCommas(left);
  return `${withCommas(microBatch.samples.length)}: ${named.join(", ")}${left > 0 ? ` and ${left} more` : ""}`;
}

function tokensOf(microBatch) {
  const {realTokens: real, computedTokens: computed} = microBatch;
  const share = computed > 0 ? ` (${formatShare(real / computed)} real)` : "";
  return `${withCommas(real)} of ${withCommas(computed)} computed${share}`;
}

function titleOf(rank, instruction) {
  const op = opOf(instruction);
  if (op.whole) return `${op.name}, rank ${rank.rank}`;
  return `${op.name}, micro-batch ${instruction[MICRO_BATCH]}, stage ${instruction[STAGE]}`;
}

// Of a joint pass with what the rank would take alone.
function durationOf(instruction) {
  const joint = jointOf(instruction), duration = instruction[DURATION];
  if (joint === null) return formatTime(duration);
  const waits = duration - joint[OWN];
  return `${formatTime(duration)}${waits > 0 ? `: ${formatTime(joint[OWN])} alone, ${formatTime(waits)} for the slowest of the stage group` : ", the slowest of the stage group"}`;
}

// What the rank has of a micro-batch whose rows are placed on context ranks.
function tokensHere(rank, microBatch) {
  if (microBatch.spans.length === 0) return [];
  let tokens = 0, whole = 0, divided = 0;
  microBatch.spans.forEach(([first, ranks], row) => {
    if (rank.context < first || rank.context >= first + ranks) return;
    tokens += tokensOn(rank, microBatch, row);
    ranks === 1 ? ++whole : ++divided;
  });
  return [["on this rank", `${plural(tokens, "token")}: ${withCommas(whole)} whole, parts of ${withCommas(divided)}`]];
}

// The rows of each part that passes go through in turn.
function partsOf(microBatch) {
  const begins = microBatch.partRows;
  if (begins.length === 0) return [];
  if (microBatch.partChunks.length > 0) {
    const end = (row, part) => `${microBatch.partChunks[part + 1] > 0 ? `chunk ${microBatch.partChunks[part + 1]} of ` : ""}row ${row}`;
    return [["parts", `in turn, up to ${begins.slice(1).map(end).join(", ")}; backward passes are whole`]];
  }
  const rows = begins.slice(1).map((end, part) => withCommas(end - begins[part])).join(", ");
  return [["parts", `${rows} rows, in turn${microBatch.wholeBackward ? "; backward passes are whole" : ""}`]];
}

function exchangeOf(joint) {
  const pairs = [];
  if (TENSORS > 1)
    pairs.push(["tensor ranks", `${formatBytes(joint[TENSOR_BYTES])} sent, ${formatTime(joint[TENSOR_NS])}`]);
  if (CONTEXTS > 1)
    pairs.push(["context ranks", `${formatBytes(joint[CONTEXT_SENT])} sent, ${formatBytes(joint[CONTEXT_RECEIVED])} received, ` +
                `${formatTime(joint[CONTEXT_NS])}, ${formatTime(joint[CONTEXT_EXPOSED])} of it not behind attention`]);
  if (joint[EXPERT_NS] > 0)
    pairs.push(["other ranks' experts", `${formatBytes(joint[EXPERT_BYTES])} sent, ${formatTime(joint[EXPERT_NS])}, ` +
                `${formatTime(joint[EXPERT_EXPOSED])} of it waited for`]);
  return pairs;
}

function factsOf({rank, id}, mostSamples) {
  const instruction = rank.instructions[id];
  const place = GROUPED ? ` (${placeOf(rank)})` : "";
  const pairs = [["rank", `${rank.rank}${place}, replica ${rank.replica}, instruction ${id}`],
                 ["start", formatTime(instruction[START])],
                 ["duration", durationOf(instruction)]];
  const microBatch = microBatchOf(rank, instruction);
  if (microBatch !== null) {
    pairs.push(["samples", samplesOf(microBatch, mostSamples)], ["tokens", tokensOf(microBatch)],
               ...tokensHere(rank, microBatch), ...partsOf(microBatch), ["layout", shapeOf(microBatch)], ["recompute", recomputeOf(microBatch, instruction[STAGE])]);
  }
  if (instruction[PEER] !== undefined)
    pairs.push(["transfer", `${instruction[GRADIENT] ? "gradient" : "activation"}, rank ${instruction[PEER]} at the other end`]);
  const joint = jointOf(instruction);
  if (joint !== null) pairs.push(...exchangeOf(joint));
  else if (instruction[BYTES] !== undefined) pairs.push(["bytes", formatBytes(instruction[BYTES])]);
  const {before, during, after} = rank.memory;
  pairs.push(["memory", `${formatBytes(before[id])} → ${formatBytes(during[id])} → ${formatBytes(after[id])} (before, during, after)`]);
  return facts(pairs);
}

const tooltip = document.getElementById("tooltip");

function showTooltip(content, x, y) {
  tooltip.replaceChildren(...content);
  tooltip.hidden = false;
  const {width, height} = tooltip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
  const top = y + 16 + height > innerHeight ? y - 16 - height : y + 16;
  tooltip.style.left = Math.max(left, 4) + "px";
  tooltip.style.top = Math.max(top, 4) + "px";
}

function hideTooltip() {
  tooltip.hidden = true;
}

function instructionTooltip(place) {
  const instruction = place.rank.instructions[place.id];
  return [element("p", titleOf(place.rank, instruction), {class: "title"}), factsOf(place, 4)];
}

function rankTooltip(rank) {
  const pairs = SHOWN_PARTS.map(part => {
    const ns = part.of(rank);
    return [part.name, `${formatTime(ns)} (${formatShare(plan.makespan > 0 ? ns / plan.makespan : 0)})`];
  });
  pairs.push(["memory", `${formatBytes(rank.static)} always, ${formatBytes(rank.peak)} at the peak (instruction ${rank.peakAt})`]);
  if (rank.limit > 0) pairs.push(["limit", formatBytes(rank.limit)]);
  return [element("p", `Rank ${rank.rank}${GROUPED ? `, ${placeOf(rank)}` : ""}`, {class: "title"}), facts(pairs)];
}

// The chosen instruction below the timeline, with all of its samples.
function showSelected() {
  const section = document.getElementById("selected");
  section.hidden = view.selected === null;
  if (view.selected === null) return;
  const {rank, id} = view.selected;
  const instruction = rank.instructions[id];
  const content = [element("p", titleOf(rank, instruction), {class: "title"}), factsOf(view.selected, 0)];
  const microBatch = microBatchOf(rank, instruction);
  if (microBatch !== null) content.push(sampleTable(rank, microBatch));
  section.replaceChildren(...content);
}

function sampleTable(rank, microBatch) {
  const names = ["sample", "id", "input tokens", "target tokens"];
  const placed = microBatch.spans.length > 0, ofSamples = placed && microBatch.rowSamples.length === 0;
  if (placed) names.push("context ranks");
  if (ofSamples) names.push("tokens on this rank");
  const head = names.map(name => element("th", name, {scope: "col"}));
  const rows = microBatch.samples.map((index, i) => {
    const [id, input, target] = plan.samples[index] ?? ["?", "?", "?"];
    const cells = [index, id, input, target];
    if (placed) cells.push(spanText(microBatch, rowOf(microBatch, i)));
    if (ofSamples) cells.push(tokensOn(rank, microBatch, i));
    return element("tr", cells.map(cell => element("td", String(cell))));
  });
  return element("div", element("table", [element("tr", head), ...rows]), {class: "samples"});
}

// The head of the page.

function figure(name, value, more) {
  const content = [value];
  if (more) content.push(" ", element("small", more));
  return element("div", [element("dt", name), element("dd", content)]);
}

function showHead() {
  document.title = `Plan of iteration ${plan.iteration}, ${plan.job}`;
  document.getElementById("title").textContent = `Plan of iteration ${plan.iteration}, job ${plan.job}`;
  const [pipeline, data] = plan.mesh;
  const positions = GROUPED ? `${plural(pipeline, "stage group")} of ${CONTEXTS} context × ${TENSORS} tensor ranks a pipeline` : `${pipeline} ranks a pipeline`;
  document.getElementById("subtitle").textContent =
      `${plan.model}; ${positions} × ${plural(data, "replica")}; layers per stage ${plan.layersPerStage.join(", ")}; ` +
      `schedule ${plan.schedule}${CONTEXTS > 1 ? `; samples × context ranks: ${spansOfPlan()}` : ""}`;
  const microBatches = plan.replicas.reduce((sum, replica) => sum + replica.microBatches.length, 0);
  const ranks = Math.max(plan.ranks.length, 1);
  const busy = plan.ranks.reduce((sum, rank) => sum + rank.busy, 0) / ranks;
  const peak = plan.ranks.reduce((best, rank) => rank.peak > best.peak ? rank : best, plan.ranks[0]);
  const padding = plan.computedTokens > 0 ? plan.realTokens / plan.computedTokens : 1;
  const figures = [figure("makespan", formatTime(plan.makespan))];
  if (plan.lowerBound > 0) {
    figures.push(figure("lower bound", formatTime(plan.lowerBound)),
                 figure("gap", formatShare(plan.makespan / plan.lowerBound - 1)));
  }
  figures.push(figure("padding efficiency", formatShare(padding), `${withCommas(plan.realTokens)} tokens`),
               figure("bubble", formatShare(plan.makespan > 0 ? 1 - busy / plan.makespan : 0)),
               figure("micro-batches", withCommas(microBatches), plural(plan.samples.length, "sample")));
  if (peak) figures.push(figure("peak memory", formatBytes(peak.peak), `rank ${peak.rank}`));
  document.getElementById("figures").replaceChildren(...figures);
}

function legendEntry(swatch, words) {
  return element("li", [swatch, element("span", words)]);
}

// The mean of all ranks as one bar, and what its colours mean.
function showMeanBar() {
  const bar = document.getElementById("mean-bar");
  const all = plan.makespan * Math.max(plan.ranks.length, 1);
  const words = [];
  for (const part of SHOWN_PARTS) {
    const share = all > 0 ? plan.ranks.reduce((sum, rank) => sum + part.of(rank), 0) / all : 0;
    const piece = element("div", []), swatch = element("i", []), value = element("b", formatShare(share));
    piece.style.cssText = `width:${100 * share}%;background:${part.colour}`;
    swatch.style.background = part.colour;
    bar.append(piece);
    words.push(`${part.name} ${formatShare(share)}`);
    document.getElementById("causes").append(legendEntry(swatch, [part.name + " ", value]));
  }
  bar.setAttribute("aria-label", `Mean of all ranks: ${words.join(", ")}`);
}

// What `penstock plan --explain` says, where the page was made with it.

// The first cell names the row.
function tableRow(cells) {
  return element("tr", cells.map((cell, i) => i === 0 ? element("th", cell, {scope: "row"}) : element("td", cell)));
}

function tableHead(cells) {
  return element("thead", element("tr", cells.map(cell => element("th", cell, {scope: "col"}))));
}

function showExplanation() {
  if (plan.explanation === null) return;
  document.getElementById("explanation").hidden = false;
  document.getElementById("conclusion").textContent = plan.explanation.conclusion;
  const {mean, busiest, idlest, meshes = []} = plan.explanation.time;
  const columns = [mean, ...meshes, busiest, idlest];
  const parts = plan.explanation.parts.filter(([key]) => columns.some(column => column[key] >= 0.0005));
  document.getElementById("time-table").append(
      tableHead(["share of the makespan", "mean", ...meshes.map(({mesh}) => mesh), `rank ${busiest.rank} (busiest)`, `rank ${idlest.rank} (waits most)`]),
      element("tbody", parts.map(([key, title]) => tableRow([title, ...columns.map(column => formatShare(column[key]))]))));
  document.getElementById("what-if-table").append(
      tableHead(["what if", "makespan", "gain", "known by"]),
      element("tbody", plan.explanation.what_if.map(
          ({condition, makespan_ms: ms, gain, kind}) =>
              tableRow(ms === null ? [condition, "", "", "no plan"] : [condition, formatTime(1e6 * ms), formatShare(gain), kind]))));
}

function showKinds() {
  const kinds = document.getElementById("kinds");
  const used = new Set(plan.ranks.flatMap(rank => rank.instructions.map(instruction => opOf(instruction))));
  for (const op of Object.values(OPS)) {
    if (!op.shade || !used.has(op)) continue;
    const swatch = element("i", []);
    const colour = colourOf(0, op.shade);
    swatch.style.background = SHADES[op.shade].hatched
        ? `repeating-linear-gradient(135deg, ${colour} 0 2.5px, rgb(29 39 51 / 45%) 2.5px 4px)` : colour;
    kinds.append(legendEntry(swatch, `${op.letter} ${op.name.toLowerCase()}`));
  }
  for (const [words, colour] of [["lower bound", LOWER_BOUND_COLOUR], ["last backward", LAST_BACKWARD_COLOUR],
                                 ["memory limit", LIMIT_COLOUR]]) {
    const swatch = element("i", [], {class: "line"});
    swatch.style.borderColor = colour;
    kinds.append(legendEntry(swatch, words));
  }
}
