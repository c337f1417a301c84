// One job: its state, how it has run so far, its last iterations.

import {LineChart} from "./charts.js";
import {byId, fillFigures, fillTable, setText, showText} from "./dom.js";
import {compact, groupRanks, plural, round, share, stateName, timeOfNanoseconds, withCommas} from "./format.js";
import {showWorkers} from "./workers.js";

let charts = null;

function makeCharts() {
  const container = byId("charts");
  return [
    new LineChart(container, {title: "Loss", series: [{key: "loss", name: "loss"}], fromZero: false}),
    new LineChart(container, {title: "Tokens/s", series: [{key: "tokens_per_second", name: "tokens/s"}]}),
    new LineChart(container, {title: "Iteration", series: [{key: "measured_ms", name: "measured"}, {key: "predicted_ms", name: "planned"}], unit: " ms"}),
    new LineChart(container, {title: "Planned ahead", series: [{key: "planned_ahead", name: "iterations planned ahead"}], format: round}),
  ];
}

function modelText(model) {
  if (model === null) return "";
  const [name, layers] = model.architecture === "ARCHITECTURE_T5" ? ["T5", `${model.encoder_layers} + ${model.decoder_layers}`] : ["GPT", model.layers];
  return `${name}, ${layers} layers, width ${model.hidden}; `;
}

// Of one rank each, or of stage groups.
function positionsText(mesh) {
  if (groupRanks(mesh) === 1) return plural(mesh.pipeline, "rank");
  return `${plural(mesh.pipeline, "stage group")} of ${Math.max(mesh.context, 1)} context × ${Math.max(mesh.tensor, 1)} tensor ranks`;
}

function subtitle(spec) {
  const policy = spec.planning.policy.replace("POLICY_", "").toLowerCase();
  const owner = spec.owner === "" ? "" : `; of ${spec.owner}`;
  const strategies = spec.strategies.length > 1 ? `, or as one of ${spec.strategies.length - 1} other strategies says` : "";
  return `${modelText(spec.model)}${positionsText(spec.mesh)} a pipeline × ${plural(spec.mesh.data, "replica")}${strategies}; policy ${policy}${owner}`;
}

function ratio(numerator, denominator) {
  return Number(denominator) > 0 ? Number(numerator) / Number(denominator) : NaN;
}

function tokensPerSecond(iteration) {
  return 1e9 * ratio(iteration.real_tokens, iteration.measured_ns);
}

// What trains nothing has no loss.
function lossText(loss) {
  return Number(loss) === 0 ? "none" : compact(loss);
}

// Of the tasks that the iteration had samples of.
function taskLosses(spec, last) {
  return last.tasks.filter((one) => Number(one.weight) > 0).map((one) => [`loss, ${spec.tasks[one.task]}`, compact(one.loss)]);
}

// Of the last of these iterations behind which the ranks validated.
function validationLoss(iterations) {
  const validated = iterations.filter((one) => one.validation !== undefined && one.validation !== null).at(-1);
  if (validated === undefined) return [];
  return [["validation loss", `${compact(validated.validation.loss)} after ${withCommas(validated.iteration)}`]];
}

// The layer in which `field` is most, over the mean; nothing where workers do not tell.
function worstLayer(name, layers, field) {
  const told = layers.filter((one) => one[field] > 0);
  if (told.length === 0) return [];
  const worst = told.reduce((most, one) => (one[field] > most[field] ? one : most));
  const mean = told.reduce((sum, one) => sum + one[field], 0) / told.length;
  return [[name, `${compact(worst[field])} in layer ${worst.layer}, ${compact(mean)} in the mean`]];
}

function expertLoads({expert_layers: layers}) {
  return [...worstLayer("fullest expert over the mean", layers, "fullest_expert"), ...worstLayer("fullest expert rank over the mean", layers, "fullest_rank")];
}

function figuresOf(status, spec, iterations) {
  const last = iterations.at(-1);
  const all = spec.training === null ? 0 : Number(spec.training.iterations);
  const figures = [["state", stateName(status.state)],
                   ["iterations done", withCommas(status.completed_iteration) + (all > 0 ? ` of ${withCommas(all)}` : "")],
                   ["planned ahead", withCommas(Math.max(0, status.planned_iteration - status.completed_iteration))],
                   ["epoch", withCommas(status.epoch)]];
  if (last === undefined) return figures;
  return [...figures, ["loss", lossText(last.loss)], ...taskLosses(spec, last), ...validationLoss(iterations), ["tokens/s", compact(tokensPerSecond(last))],
          ["padding efficiency", share(ratio(last.real_tokens, last.computed_tokens))],
          ["bubble, planned / measured", `${share(last.predicted_bubble)} / ${share(last.bubble)}`],
          ["measured against planned", share(ratio(last.measured_ns, last.predicted_ns))], ...expertLoads(last)];
}

function iterationRow(one) {
  return [withCommas(one.iteration), lossText(one.loss), compact(one.gradient_norm), compact(tokensPerSecond(one)), timeOfNanoseconds(one.measured_ns),
          timeOfNanoseconds(one.predicted_ns), share(one.bubble), share(ratio(one.real_tokens, one.computed_tokens)), withCommas(one.micro_batches),
          timeOfNanoseconds(one.planning_time_ns), withCommas(one.planned_ahead), timeOfNanoseconds(one.waited_for_program_ns)];
}

// What mending each cause would save, by replay of its last iterations.
function showCauses({diagnosis}) {
  const causes = diagnosis?.causes ?? [];
  byId("causes-box").hidden = causes.length === 0;
  if (causes.length === 0) return;
  const {first_iteration: first, end_iteration: end} = diagnosis;
  setText(byId("causes-note"), `Iterations ${withCommas(first)} to ${withCommas(end - 1)}; gains do not add up. More: penstock diagnose`);
  fillTable(byId("causes"), causes.map((one) => [share(one.gain), {text: one.description, className: "words"}, {text: one.advice, className: "words"}]));
}

// `data`: the answer to data/job.
export function showJob({job: {status, job: spec, iterations}, history}) {
  byId("job").hidden = false;
  charts ??= makeCharts();
  setText(byId("job-title"), `Job ${status.job_id}`);
  document.title = `${status.job_id} (${stateName(status.state)}), Penstock`;
  setText(byId("job-model"), subtitle(spec));
  showText(byId("job-failure"), status.failure);
  fillFigures(byId("figures"), figuresOf(status, spec, iterations));
  showCauses(status);
  for (const chart of charts) chart.update(history);
  const points = history.iterations_per_point;
  setText(byId("history-note"), points > 1 ? `A point of these charts is the mean of ${points} iterations.` : "");
  fillTable(byId("last-iterations"), iterations.toReversed().map(iterationRow));
  showWorkers(status, spec);
}

export function hideJob() {
  byId("job").hidden = true;
  document.title = "Penstock";
}
