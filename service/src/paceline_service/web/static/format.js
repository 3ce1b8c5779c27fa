// Figures as people read them, always with their unit. Durations come in nanoseconds.

export const UNKNOWN = "–";
const THIN = " ";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** 12345 -> "12,345". */
export function count(value) {
  return known(value) ? whole.format(value) : UNKNOWN;
}

/** 1, "rank" -> "1 rank"; 1024, "rank" -> "1,024 ranks". */
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Three significant digits, without an exponent. */
export function digits(value) {
  const size = Math.abs(value);
  if (size >= 100) return whole.format(value);
  return value.toFixed(size >= 10 ? 1 : 2);
}

/** Nanoseconds -> "1.42 ms". */
export function duration(ns) {
  if (!known(ns)) return UNKNOWN;
  const size = Math.abs(ns);
  if (size < 500) return `0${THIN}ms`;
  if (size < 1e6) return `${digits(ns / 1e3)}${THIN}µs`;
  if (size < 1e9) return `${digits(ns / 1e6)}${THIN}ms`;
  return span(ns / 1e9);
}

/** Seconds -> "42.0 s", "3.10 min", "5.20 h", "2.00 d". */
export function span(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const size = Math.abs(seconds);
  if (size < 120) return `${digits(seconds)}${THIN}s`;
  if (size < 7200) return `${digits(seconds / 60)}${THIN}min`;
  if (size < 172800) return `${digits(seconds / 3600)}${THIN}h`;
  return `${digits(seconds / 86400)}${THIN}d`;
}

/** GPU-seconds -> "11.6 GPU-s", "3.2 GPU-h". */
export function gpuTime(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 600) return `${digits(seconds)}${THIN}GPU-s`;
  return `${digits(seconds / 3600)}${THIN}GPU-h`;
}

/** 1.42 -> "1.42×". */
export function times(value) {
  return known(value) ? `${value.toFixed(2)}×` : UNKNOWN;
}

/** 0.123 -> "12.3 %". */
export function percent(value) {
  if (!known(value)) return UNKNOWN;
  const hundredths = value * 100;
  return `${hundredths >= 9.95 ? hundredths.toFixed(0) : hundredths.toFixed(1)}${THIN}%`;
}

/** 0.42 -> "0.42". */
export function ratio(value) {
  return known(value) ? value.toFixed(2) : UNKNOWN;
}

/** [0,1,2,5] -> "0–2, 5", cut after `limit` ranges. */
export function rankList(ranks, limit = 4) {
  const parts = [];
  for (let i = 0; i < ranks.length; ) {
    let j = i;
    while (j + 1 < ranks.length && ranks[j + 1] === ranks[j] + 1) j += 1;
    parts.push(i === j ? `${ranks[i]}` : `${ranks[i]}–${ranks[j]}`);
    i = j + 1;
  }
  const more = parts.length > limit ? ` and ${parts.length - limit} more` : "";
  return parts.slice(0, limit).join(", ") + more;
}

/** Wall-clock ns -> "14:03:22" in the reader's time zone. */
export function clock(wallNs) {
  return known(wallNs) && wallNs > 0 ? new Date(wallNs / 1e6).toLocaleTimeString([], { hour12: false }) : UNKNOWN;
}

/** Wall-clock ns -> "12 s ago". */
export function ago(wallNs, nowMs = Date.now()) {
  if (!known(wallNs) || wallNs <= 0) return UNKNOWN;
  const seconds = Math.max(0, nowMs / 1e3 - wallNs / 1e9);
  if (seconds < 3) return "now";
  if (seconds < 120) return `${Math.round(seconds)} s ago`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

/** Wall-clock ns -> "14:03:22" today, else "19 Nov, 14:03", in the reader's time zone. */
export function moment(wallNs, now = new Date()) {
  if (!known(wallNs) || wallNs <= 0) return UNKNOWN;
  const at = new Date(wallNs / 1e6);
  if (at.toDateString() === now.toDateString()) return clock(wallNs);
  const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return at.toLocaleString("en-GB", { day: "numeric", month: "short", year, hour: "2-digit", minute: "2-digit" });
}
