// The page: a list of jobs, and the one that its address names ("#job=mix"), or the only one.

import {byId, showText} from "./dom.js";
import {ask, askNow, Refused, watch} from "./feed.js";
import {connectIterationControls, lookAtIteration} from "./iteration.js";
import {hideJob, showJob} from "./job.js";
import {showJobs} from "./jobs.js";
import {connectTimeline} from "./timeline.js";

function chosenJob(jobs) {
  return new URLSearchParams(location.hash.slice(1)).get("job") ?? (jobs.length === 1 ? jobs[0].job_id : null);
}

function showMissing(name) {
  hideJob();
  showText(byId("job-missing"), name === null ? "" : `This planner knows no job ${name}.`);
}

// One question after the other: whoever is slow to answer is not asked more.
async function look() {
  const {jobs} = await ask("jobs");
  const name = chosenJob(jobs);
  showJobs(jobs, name);
  if (!jobs.some(status => status.job_id === name)) return showMissing(name);
  try {
    const data = await ask("job", {id: name});
    showText(byId("job-missing"), "");
    showJob(data);
    await lookAtIteration(data.job.status);
  } catch (error) {
    // Deleted between the two questions.
    if (!(error instanceof Refused) || error.status !== 404) throw error;
    showMissing(name);
  }
}

addEventListener("hashchange", askNow);
connectIterationControls();
connectTimeline();
watch(look);
