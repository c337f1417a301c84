// The workers of a job: who is where, and when each was last heard of.

import {byId, fillTable, setText} from "./dom.js";
import {groupRanks, plural, withCommas} from "./format.js";

// What the planner takes where a job does not say.
const DEFAULT_TIMEOUT_MS = 5000;

function seconds(milliseconds) {
  return withCommas(milliseconds / 1e3, 1) + " s";
}

// The first few of them.
function listed(ranks) {
  const MOST = 8;
  return ranks.slice(0, MOST).join(", ") + (ranks.length > MOST ? ` and ${ranks.length - MOST} more` : "");
}

export function showWorkers(status, spec) {
  const timeout = Number(spec.heartbeat_timeout_ms) || DEFAULT_TIMEOUT_MS;
  const ages = status.workers.map(worker => Number(worker.heartbeat_age_ms));
  const live = ["JOB_STATE_RUNNING", "JOB_STATE_DRAINING"].includes(status.state);
  // One that is half way to being taken for lost.
  const isLate = worker => live && Number(worker.heartbeat_age_ms) > timeout / 2;
  const late = status.workers.filter(isLate).map(worker => worker.rank);
  const ranks = spec.mesh.pipeline * spec.mesh.data * groupRanks(spec.mesh);
  setText(byId("workers-summary"), `${withCommas(ages.length)} of ${plural(ranks, "rank")}` +
      (ages.length > 0 ? `; the longest silence is ${seconds(Math.max(...ages))}` : "") +
      (late.length > 0 ? `; late: ${late.length > 1 ? "ranks" : "rank"} ${listed(late)}` : "") + `; one that is silent for ${seconds(timeout)} is lost`);
  fillTable(byId("workers"), status.workers.map((worker, i) => {
    const age = {text: `${seconds(ages[i])} ago${isLate(worker) ? ", late" : ""}`, className: isLate(worker) ? "late" : ""};
    return [worker.rank, {text: worker.host, className: "words"}, age,
            Number(worker.last_iteration) < 0 ? "none" : withCommas(worker.last_iteration)];
  }));
}
