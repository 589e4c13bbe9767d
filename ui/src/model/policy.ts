// What a policy and its ledger say, for tables and the picture.
import type { Copied, CopyPath, Hop, MonitorPort, PolicyReport, TapPolicy } from "../api/types";

/** How urgent something is; each has a colour and a word, never only a colour. */
export type Tone = "good" | "wait" | "bad" | "plain";

/** The monitors that a policy names. */
export function monitorNames(policy: TapPolicy): string[] {
  return [policy.monitor]
    .flat()
    .filter((name) => name !== undefined)
    .map(String);
}

/** The monitor that is the controller itself: it shows the starts of copies on this page. */
const HERE = "controller";

/** Whether the copies of a policy are shown here. */
export const isShownHere = (policy: TapPolicy): boolean => monitorNames(policy).includes(HERE);

/** The policy with this page as one more monitor. */
export const shownHere = (policy: TapPolicy): TapPolicy => ({
  ...policy,
  monitor: [...elsewhere(policy), HERE],
});

/** The policy without this page; `undefined` where its copies would go nowhere. */
export function notShownHere(policy: TapPolicy): TapPolicy | undefined {
  const [first, ...more] = elsewhere(policy);
  if (first === undefined) return undefined;
  return { ...policy, monitor: more.length ? [first, ...more] : first };
}

/** The other monitors of a policy. */
export const elsewhere = (policy: TapPolicy): string[] =>
  monitorNames(policy).filter((name) => name !== HERE);

/** Whose a policy is: whom it names, else who added it. */
export const owner = (report: PolicyReport): string | undefined =>
  report.policy.owner ?? report.owner ?? undefined;

/** Fields that say which traffic is copied, in the order in which people read them. */
export const TRAFFIC = [
  "src-mac",
  "dst-mac",
  "eth-type",
  "src-ip",
  "dst-ip",
  "ip-proto",
  "vlan",
  "src-port",
  "dst-port",
  "filter",
] as const;

/** Which traffic a policy copies, field by field. */
export function trafficWords(policy: TapPolicy): string[] {
  const fields = TRAFFIC.filter((field) => policy[field] !== undefined);
  const words = fields.map((field) => `${field}=${quoted(String(policy[field]))}`);
  if (words.length === 0) return ["all traffic"];
  return policy.direction === "both" ? [...words, "both directions"] : words;
}

/** The same in one line. */
export const traffic = (policy: TapPolicy): string => trafficWords(policy).join(" ");

/** Where frames are copied, in words. */
export const pointText = (point: string): string =>
  point === "egress"
    ? "where frames go out, after what was rewritten on their way"
    : "where frames come in, before anything is rewritten";

/** What copies are owed: the contract's name, and how long senders wait at most, as it is written. */
export function contract(delivery: string): { word: string; stall?: string } {
  const [, stall] = /^lossless:(.*)$/s.exec(delivery) ?? [];
  return stall === undefined ? { word: delivery } : { word: "lossless", stall };
}

/** The same in words. */
export function contractText(delivery: string): string {
  const { word, stall } = contract(delivery);
  if (word === "lossless")
    return stall === undefined
      ? "lossless: senders wait as long as the monitor's port allows"
      : `lossless: senders wait for at most ${stall} ms at a time`;
  return word;
}

const quoted = (text: string): string => (/\s/.test(text) ? `"${text}"` : text);

/** Frames that are accounted for at one monitor. */
export function accounted(copied: Copied): number {
  return copied.delivered.packets + copied.flooded + copied.in_flight + lost(copied);
}

/** Copies that were dropped at one monitor. */
export function lost(copied: Copied): number {
  return Object.values(copied.dropped).reduce((sum, n) => sum + n, 0);
}

/** Sums over all monitors of a policy. */
export interface Totals {
  matched: number;
  delivered: number;
  deliveredBytes: number;
  flooded: number;
  inFlight: number;
  dropped: number;
}

export function totals(report: PolicyReport): Totals {
  const sum = (f: (c: Copied) => number) => report.copied.reduce((all, c) => all + f(c), 0);
  return {
    matched: report.matched.packets,
    delivered: sum((c) => c.delivered.packets),
    deliveredBytes: sum((c) => c.delivered.bytes),
    flooded: sum((c) => c.flooded),
    inFlight: sum((c) => c.in_flight),
    dropped: sum(lost),
  };
}

/** What the ledger says, in a word and a sentence. */
export interface Verdict {
  tone: Tone;
  word: string;
  sentence: string;
}

export function ledger(report: PolicyReport): Verdict {
  const { dropped } = totals(report);
  if (!report.adds_up) {
    return {
      tone: "bad",
      word: "does not add up",
      sentence: "Some frames that matched are neither delivered, nor in flight, nor dropped.",
    };
  }
  if (!report.is_complete) {
    return {
      tone: "wait",
      word: "incomplete",
      sentence: "A switch was lost, or a counter did not come: something may be missing.",
    };
  }
  if (dropped > 0) {
    return { tone: "wait", word: "adds up, drops", sentence: "Copies were dropped, by name." };
  }
  return { tone: "good", word: "adds up", sentence: "Every frame that matched is accounted for." };
}

/** How a policy is doing, in a word. */
export function state(report: PolicyReport): Verdict {
  const reason = "reason" in report.state ? report.state.reason : "";
  switch (report.state.is) {
    case "active":
      return { tone: "good", word: "active", sentence: "Copies are made." };
    case "partial":
      return { tone: "bad", word: "partial", sentence: reason };
    case "installing":
      return { tone: "wait", word: "installing", sentence: "Switches are being told." };
    case "pending":
      return { tone: "wait", word: "pending", sentence: reason };
    case "resting":
      return { tone: "plain", word: "resting", sentence: reason };
    case "failed":
      return { tone: "bad", word: "failed", sentence: reason };
    default:
      return { tone: "plain", word: report.state.is, sentence: reason };
  }
}

/** The worse the smaller: what lists are sorted by. */
export const urgency = (tone: Tone): number => URGENT.indexOf(tone);

const URGENT: Tone[] = ["bad", "wait", "good", "plain"];

/** The tone in which a TAP is drawn: the worse of its state's and its ledger's. */
export function tone(report: PolicyReport): Tone {
  const tones = [state(report).tone, ledger(report).tone];
  return URGENT.find((t) => tones.includes(t)) ?? "plain";
}

/** Whether somebody should look at it: it failed, reaches some monitors only, or does not add up. */
export const hasProblem = (report: PolicyReport): boolean => tone(report) === "bad";

/** Those with problems first, and else in their order. */
export const worstFirst = (reports: PolicyReport[]): PolicyReport[] =>
  [...reports].sort((a, b) => Number(hasProblem(b)) - Number(hasProblem(a)));

/** Where the copies of a policy go, as far as that is known. */
export function monitorPorts(report: PolicyReport): MonitorPort[] {
  if (report.monitors) return report.monitors;
  if (report.monitor) return [report.monitor];
  return report.copied.map((copied) => copied.monitor);
}

/** OpenFlow's port CONTROLLER, of whichever switch: the copies come to this page. */
export const isController = (port: MonitorPort): boolean => port.port === OFPP_CONTROLLER;

/** `watch0 (0x1/3)`. */
export function monitorText(port: MonitorPort): string {
  if (isController(port)) return HERE;
  const place = `${port.switch}/${port.port}`;
  return port.name ? `${port.name} (${place})` : place;
}

const OFPP_CONTROLLER = 0xfffffffd;

/** The ways of a policy's copies; `[]` when the controller does not tell. */
export function paths(report: PolicyReport): CopyPath[] {
  if (!Array.isArray(report.path)) return [];
  return report.path.flatMap((path) => {
    const monitor = path?.monitor as MonitorPort | undefined;
    const hops = (path?.hops ?? path?.switches ?? []) as (Hop | string)[];
    const asHop = (hop: Hop | string): Hop => (typeof hop === "string" ? { switch: hop } : hop);
    return monitor ? [{ monitor, hops: hops.map(asHop) }] : [];
  });
}

/** When a policy ends, in milliseconds of the clock; `undefined` when it does not. */
export function endsAt(report: PolicyReport): number | undefined {
  const text = report.expires_at ?? report.policy.expires;
  const at = typeof text === "string" ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? undefined : at;
}
