// Which iteration of the job is shown, and what it was: timeline, lengths, replicas.

import {byId, fillFigures, fillTable, setText, showText} from "./dom.js";
import {askNow, ask, Refused} from "./feed.js";
import {plural, share, timeOfMicroseconds, withCommas} from "./format.js";
import {clearTimeline, showTimeline} from "./timeline.js";

// A timeline of many ranks is the largest thing that is sent.
const LEAST_PAUSE_MS = 3000;

const chosen = {job: null, iteration: null, replica: "", newest: null, shown: null, shownAt: 0};

function fillReplicaChoice(count) {
  const select = byId("replica");
  if (select.options.length !== count + 1) {
    const values = ["", ...Array(count).keys()];
    select.replaceChildren(...values.map(value => new Option(value === "" ? "all" : String(value), String(value))));
  }
  if (select.value !== chosen.replica) select.value = chosen.replica;
}

function showLengths(lengths) {
  const samples = lengths.reduce((sum, one) => sum + one.samples, 0) || 1, tokens = lengths.reduce((sum, one) => sum + one.tokens, 0) || 1;
  const widest = Math.max(1e-9, ...lengths.flatMap(one => [one.samples / samples, one.tokens / tokens]));
  fillTable(byId("lengths"), lengths.map(one => [
    one.from === one.to ? withCommas(one.from) : `${withCommas(one.from)} to ${withCommas(one.to)}`,
    withCommas(one.samples), {bars: [one.samples / samples / widest, one.tokens / tokens / widest], className: "bars"},
    `${withCommas(one.tokens)} (${share(one.tokens / tokens)})`]));
}

// How much longer the slowest replica takes than the mean: the others wait for it.
function imbalanceOf(times) {
  if (times.length === 0 || times.includes(null)) return null;
  const mean = times.reduce((sum, time) => sum + time, 0) / times.length;
  return mean > 0 ? Math.max(...times) / mean - 1 : null;
}

function showReplicas(replicas) {
  const planned = replicas.map(one => one.planned_us), measured = replicas.map(one => one.measured_us);
  const longest = Math.max(1, ...planned, ...measured.filter(time => time !== null));
  const words = [["planned", imbalanceOf(planned)], ["measured", imbalanceOf(measured)]].filter(([, value]) => value !== null)
                    .map(([name, value]) => `${name} ${share(value)}`);
  setText(byId("imbalance"), `The slowest replica is above the mean by: ${words.join(", ") || "unknown"}.`);
  fillTable(byId("replicas"), replicas.map((one, i) => [
    i, withCommas(one.micro_batches), withCommas(one.real_tokens),
    {bars: [one.planned_us / longest, one.measured_us === null ? null : one.measured_us / longest], className: "bars"},
    `${timeOfMicroseconds(one.planned_us)} / ${timeOfMicroseconds(one.measured_us)}`]));
}

function showFigures(data) {
  const figures = [["planned", timeOfMicroseconds(data.planned_us)],
                   ["measured", data.measured_us === null ? "not yet" : timeOfMicroseconds(data.measured_us)]];
  if (data.lower_bound_us > 0) figures.push(["lower bound", timeOfMicroseconds(data.lower_bound_us)]);
  figures.push(["samples", withCommas(data.samples)], ["tokens", withCommas(data.real_tokens)],
               ["padding efficiency", share(data.real_tokens / data.computed_tokens)], ["mesh", data.mesh], ["layers per stage", data.layers_per_stage.join(", ")]);
  if (data.ranks_reported > 0 && data.ranks_reported < data.ranks_planned)
    figures.push(["ranks that have reported", `${withCommas(data.ranks_reported)} of ${withCommas(data.ranks_planned)}`]);
  fillFigures(byId("iteration-figures"), figures);
}

function show(data) {
  showText(byId("iteration-error"), "");
  setText(byId("iteration-title"), `Timeline of iteration ${withCommas(data.iteration)}`);
  if (document.activeElement !== byId("iteration")) byId("iteration").value = data.iteration;
  byId("earlier").disabled = data.iteration === 0;
  fillReplicaChoice(data.replicas.length);
  showFigures(data);
  showTimeline(data);
  showText(byId("ranks-left-out"), data.ranks_left_out === 0 ? "" :
      `${plural(data.ranks_left_out, "more rank")} would be too much at once: choose a replica to see its ranks.`);
  showLengths(data.lengths);
  showReplicas(data.replicas);
}

function showNothing(why) {
  showText(byId("iteration-error"), why);
  setText(byId("iteration-title"), chosen.iteration === null ? "Timeline" : `Timeline of iteration ${withCommas(chosen.iteration)}`);
  clearTimeline();
  fillFigures(byId("iteration-figures"), []);
  showText(byId("ranks-left-out"), "");
  showLengths([]);
  showReplicas([]);
}

function following() {
  return byId("follow").checked;
}

// The newest that all ranks have reported; before there is one, the first that is planned.
function newestOf(status) {
  const done = Number(status.completed_iteration), planned = Number(status.planned_iteration);
  if (done > 0) return done - 1;
  return planned > 0 ? 0 : null;
}

function wantedNow() {
  return `${chosen.iteration} ${chosen.replica}`;
}

// Asks for the iteration that is to be shown, where it is not shown yet or may have news. `status`: of the job.
export async function lookAtIteration(status) {
  if (status.job_id !== chosen.job) Object.assign(chosen, {job: status.job_id, iteration: null, replica: "", shown: null, shownAt: 0});
  chosen.newest = newestOf(status);
  if (following()) chosen.iteration = chosen.newest;
  if (chosen.iteration === null) return showNothing("Nothing is planned yet.");
  const wanted = wantedNow();
  const complete = chosen.iteration < Number(status.completed_iteration);
  if (chosen.shown === `${wanted} complete` || (chosen.shown !== null && Date.now() - chosen.shownAt < LEAST_PAUSE_MS)) return;
  const parameters = {job: status.job_id, iteration: chosen.iteration};
  if (chosen.replica !== "") parameters.replica = chosen.replica;
  let data = null, refusal = "";
  try {
    data = await ask("iteration", parameters);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refusal = error.message;
  }
  // Another was chosen meanwhile, which is asked for next.
  if (wanted !== wantedNow()) return;
  if (data === null) showNothing(refusal);
  else show(data);
  Object.assign(chosen, {shown: complete ? `${wanted} complete` : wanted, shownAt: Date.now()});
}

function choose(changes) {
  Object.assign(chosen, changes, {shown: null});
  askNow();
}

function chooseIteration(iteration) {
  byId("follow").checked = false;
  byId("iteration").value = iteration;
  choose({iteration});
}

export function connectIterationControls() {
  byId("follow").addEventListener("change", () => choose({}));
  byId("iteration").addEventListener("change", event => {
    const iteration = event.target.valueAsNumber;
    if (Number.isSafeInteger(iteration) && iteration >= 0) chooseIteration(iteration);
  });
  byId("earlier").addEventListener("click", () => chooseIteration(Math.max(0, (chosen.iteration ?? 0) - 1)));
  byId("later").addEventListener("click", () => chooseIteration((chosen.iteration ?? -1) + 1));
  byId("replica").addEventListener("change", event => choose({replica: event.target.value}));
}
