// The list of jobs.

import {byId, element, setText} from "./dom.js";
import {stateName, withCommas} from "./format.js";

function makeRow(id) {
  const link = element("a", id, {href: "#" + new URLSearchParams({job: id})});
  const words = element("td", [], {class: "words"});
  const row = element("tr", [element("td", link), element("td"), element("td"), element("td"), words]);
  row.dataset.job = id;
  return row;
}

function fillRow(row, status, chosen) {
  const [name, state, done, ahead, failure] = row.cells;
  if (status.job_id === chosen) name.firstChild.setAttribute("aria-current", "true");
  else name.firstChild.removeAttribute("aria-current");
  setText(state, stateName(status.state));
  setText(done, withCommas(status.completed_iteration));
  setText(ahead, withCommas(Math.max(0, status.planned_iteration - status.completed_iteration)));
  setText(failure, status.failure);
}

// `jobs`: JobStatus of each, by name.
export function showJobs(jobs, chosen) {
  const body = byId("jobs");
  const rows = new Map([...body.rows].map(row => [row.dataset.job, row]));
  jobs.forEach((status, i) => {
    const row = rows.get(status.job_id) ?? makeRow(status.job_id);
    rows.delete(status.job_id);
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
    fillRow(row, status, chosen);
  });
  for (const gone of rows.values()) gone.remove();
  byId("jobs-table").hidden = jobs.length === 0;
  byId("no-jobs").hidden = jobs.length > 0;
}
