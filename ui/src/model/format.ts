// Formats numbers, rates and times.

const whole = new Intl.NumberFormat("en");

/** `1,234,567`. */
export const count = (n: number): string => whole.format(n);

/** Three significant digits with a decimal prefix: `12.3 k`, `999`, `1.00 G`. */
export function short(n: number): string {
  let value = Math.abs(n);
  if (value < 1000) return trimmed(n);
  let prefix = "";
  for (const next of ["k", "M", "G", "T", "P"]) {
    if (value < 999.5) break;
    value /= 1000;
    prefix = next;
  }
  const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${n < 0 ? "-" : ""}${value.toFixed(digits)}\u202f${prefix}`;
}

function trimmed(n: number): string {
  return Number.isInteger(n) ? String(n) : n.toFixed(Math.abs(n) < 10 ? 1 : 0);
}

/** Bits per second: `12.3 Mb/s`. */
export const bitRate = (bitsPerSecond: number): string => withUnit(bitsPerSecond, "b/s");

/** Packets per second: `12.3 kp/s`. */
export const packetRate = (perSecond: number): string => withUnit(perSecond, "p/s");

/** Bytes: `12.3 kB`. */
export const size = (bytes: number): string => withUnit(bytes, "B");

function withUnit(n: number, unit: string): string {
  const text = short(n);
  return text.includes("\u202f") ? text + unit : `${text}\u202f${unit}`;
}

/** A latency: `850 ns`, `12.3 µs`, `4.56 ms`. */
export function latency(ns: number): string {
  if (ns < 1000) return `${Math.round(ns)}\u202fns`;
  if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)}\u202fµs`;
  if (ns < 1e9) return `${(ns / 1e6).toPrecision(3)}\u202fms`;
  return `${(ns / 1e9).toPrecision(3)}\u202fs`;
}

/** A duration by its two largest units: `2 d 3 h`, `5 min 10 s`, `8 s`. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return "0 s";
  const shown = parts.slice(first, first + 2).filter(([n]) => n > 0);
  return shown.map(([n, unit]) => `${n} ${unit}`).join(" ");
}

/** Local time of day with milliseconds. */
export function preciseTime(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  const ms = String(date.getMilliseconds()).padStart(3, "0");
  return `${date.toLocaleTimeString("en-GB")}.${ms}`;
}

/** Local date and time. */
export function dateTime(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  return `${date.toLocaleDateString("sv-SE")} ${date.toLocaleTimeString("en-GB")}`;
}

/** A name within a sentence, isolated so that right-to-left text does not reorder the rest. */
export const isolated = (name: string): string =>
  RIGHT_TO_LEFT.test(name) ? `\u2068${name}\u2069` : name;

/** Hebrew, Arabic and other right-to-left scripts: the blocks that Unicode reserves for them. */
const RIGHT_TO_LEFT =
  /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** `1 switch`, `2 switches`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
