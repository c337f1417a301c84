// Numbers for people.

export function withCommas(number, digits = 0) {
  return Number(number).toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

// Six digits at most, and what is not finite by its name.
export function compact(number) {
  const value = Number(number);
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e6) return withCommas(value / 1e6, size >= 1e8 ? 0 : 1) + "M";
  if (size >= 1e4) return withCommas(value / 1e3, size >= 1e5 ? 0 : 1) + "k";
  if (size >= 100) return withCommas(value);
  if (size >= 1) return withCommas(value, 2);
  return value === 0 ? "0" : value.toPrecision(3);
}

// The same without zeros at the end, for axes.
export function round(number) {
  return compact(number).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

export function timeOfMicroseconds(microseconds) {
  if (microseconds === null) return "unknown";
  const size = Math.abs(microseconds);
  if (size < 1e3) return withCommas(microseconds) + " µs";
  if (size < 1e7) return withCommas(microseconds / 1e3, size < 1e5 ? 2 : 1) + " ms";
  return withCommas(microseconds / 1e6, 2) + " s";
}

// Nanoseconds, which protobuf's JSON writes as texts.
export function timeOfNanoseconds(nanoseconds) {
  return timeOfMicroseconds(Number(nanoseconds) / 1e3);
}

export function share(ratio) {
  return Number.isFinite(ratio) ? withCommas(100 * ratio, 1) + " %" : "unknown";
}

export function plural(count, word) {
  return withCommas(count) + " " + word + (Number(count) === 1 ? "" : "s");
}

// "RUNNING" of JOB_STATE_RUNNING as "running".
export function stateName(state) {
  return state.replace("JOB_STATE_", "").toLowerCase();
}

// Ranks of a stage group; degrees that are 0 stand for 1.
export function groupRanks(mesh) {
  return Math.max(mesh.context, 1) * Math.max(mesh.tensor, 1);
}
