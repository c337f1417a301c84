// Asks the planner for what is shown, again and again, and says how that goes. While the planner does not answer the pauses grow, and
// what is shown stays, marked as old. Nobody asks while the page is not looked at.

import {byId, showText} from "./dom.js";

const PAUSE_MS = 1000, LONGEST_PAUSE_MS = 30000, TIMEOUT_MS = 10000;

// What the planner said no to; `status` is HTTP's.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The data of an address below data/, with parameters.
export async function ask(what, parameters = {}) {
  const query = new URLSearchParams(parameters);
  const answer = await fetch(`data/${what}?${query}`, {signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store"});
  const data = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, data.error);
  return data;
}

let wake = () => {};

// The next question is asked at once: something else is looked at.
export function askNow() {
  wake();
}

function pause(milliseconds) {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, milliseconds);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

function showLive() {
  byId("content").classList.remove("stale");
  byId("connection").className = "live";
  showText(byId("connection"), "live");
  byId("try-now").hidden = true;
}

// A standby or a planner that starts says why it has no jobs; one that is gone says nothing.
function showTrouble(error, answered, next) {
  byId("content").classList.add("stale");
  byId("connection").className = "gone";
  const seconds = Math.max(0, Math.round((next - Date.now()) / 1000));
  const what = error instanceof Refused ? error.message : "the planner does not answer";
  const since = answered === null ? "" : `; what is shown is from ${new Date(answered).toLocaleTimeString()}`;
  showText(byId("connection"), `${what}${since}; next try ${seconds > 0 ? `in ${seconds} s` : "now"}`);
  byId("try-now").hidden = false;
}

async function pauseInTrouble(error, answered, milliseconds) {
  const next = Date.now() + milliseconds;
  showTrouble(error, answered, next);
  // A status region that counted each second would be read aloud each second.
  await pause(milliseconds);
}

// Calls `look` until the page is closed.
export async function watch(look) {
  byId("try-now").addEventListener("click", askNow);
  document.addEventListener("visibilitychange", askNow);
  let failures = 0, answered = null;
  for (;;) {
    if (document.hidden) {
      await pause(LONGEST_PAUSE_MS);
      continue;
    }
    try {
      await look();
      failures = 0;
      answered = Date.now();
      showLive();
      await pause(PAUSE_MS);
    } catch (error) {
      // Whoever watches a planner that comes back should not all come at once.
      const longest = Math.min(LONGEST_PAUSE_MS, PAUSE_MS * 2 ** failures++);
      await pauseInTrouble(error, answered, longest * (0.75 + 0.25 * Math.random()));
    }
  }
}
