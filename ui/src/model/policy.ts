// Texts about a policy and its ledger, for tables and the picture.
import type { Copied, CopyPath, Hop, MonitorPort, PolicyReport, TapPolicy } from "../api/types";

/** Severity; each is shown by a colour and a word, never by the colour alone. */
export type Tone = "good" | "wait" | "bad" | "plain";

/** The monitors of a policy. */
export function monitorNames(policy: TapPolicy): string[] {
  return [policy.monitor]
    .flat()
    .filter((name) => name !== undefined)
    .map(String);
}

/** The monitor that is the controller: this page shows the start of each copy. */
const HERE = "controller";

/** Whether this page shows the copies of a policy. */
export const isShownHere = (policy: TapPolicy): boolean => monitorNames(policy).includes(HERE);

/** The policy with this page as an additional monitor. */
export const shownHere = (policy: TapPolicy): TapPolicy => ({
  ...policy,
  monitor: [...elsewhere(policy), HERE],
});

/** The policy without this page; `undefined` if it has no other monitor. */
export function notShownHere(policy: TapPolicy): TapPolicy | undefined {
  const [first, ...more] = elsewhere(policy);
  if (first === undefined) return undefined;
  return { ...policy, monitor: more.length ? [first, ...more] : first };
}

/** The monitors of a policy other than this page. */
export const elsewhere = (policy: TapPolicy): string[] =>
  monitorNames(policy).filter((name) => name !== HERE);

/** The owner that the policy names, or the user who added it. */
export const owner = (report: PolicyReport): string | undefined =>
  report.policy.owner ?? report.owner ?? undefined;

/** The fields that select traffic, in display order. */
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

/** The selected traffic, one text per field. */
export function trafficWords(policy: TapPolicy): string[] {
  const fields = TRAFFIC.filter((field) => policy[field] !== undefined);
  const words = fields.map((field) => `${field}=${quoted(String(policy[field]))}`);
  if (words.length === 0) return ["all traffic"];
  return policy.direction === "both" ? [...words, "both directions"] : words;
}

/** The selected traffic in one line. */
export const traffic = (policy: TapPolicy): string => trafficWords(policy).join(" ");

/** Where frames are copied. */
export const pointText = (point: string): string =>
  point === "egress" ? "at the egress, after rewrites" : "at the ingress, before rewrites";

/** The name of a delivery contract, and the maximum time that senders wait, as written. */
export function contract(delivery: string): { word: string; stall?: string } {
  const [, stall] = /^lossless:(.*)$/s.exec(delivery) ?? [];
  return stall === undefined ? { word: delivery } : { word: "lossless", stall };
}

/** A delivery contract as text. */
export function contractText(delivery: string): string {
  const { word, stall } = contract(delivery);
  if (word === "lossless")
    return stall === undefined
      ? "lossless: senders wait as long as the monitor's port allows"
      : `lossless: senders wait for at most ${stall} ms at a time`;
  return word;
}

const quoted = (text: string): string => (/\s/.test(text) ? `"${text}"` : text);

/** Frames that the ledger accounts for at one monitor. */
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

/** A state or ledger in one word and in one sentence. */
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
      sentence: "A switch was lost or did not report a counter: the counts may be incomplete.",
    };
  }
  if (dropped > 0) {
    return {
      tone: "wait",
      word: "adds up, drops",
      sentence: "Copies were dropped; each drop is counted by name.",
    };
  }
  return { tone: "good", word: "adds up", sentence: "Every frame that matched is accounted for." };
}

/** The state of a policy. */
export function state(report: PolicyReport): Verdict {
  const reason = "reason" in report.state ? report.state.reason : "";
  switch (report.state.is) {
    case "active":
      return { tone: "good", word: "active", sentence: "Copies are made." };
    case "partial":
      return { tone: "bad", word: "partial", sentence: reason };
    case "installing":
      return { tone: "wait", word: "installing", sentence: "Rules are being installed." };
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

/** Sort key: the more severe, the smaller. */
export const urgency = (tone: Tone): number => URGENT.indexOf(tone);

const URGENT: Tone[] = ["bad", "wait", "good", "plain"];

/** The tone of a TAP in the picture: the worse one of its state and its ledger. */
export function tone(report: PolicyReport): Tone {
  const tones = [state(report).tone, ledger(report).tone];
  return URGENT.find((t) => tones.includes(t)) ?? "plain";
}

/** Whether a policy needs attention: it failed, is partial, or does not add up. */
export const hasProblem = (report: PolicyReport): boolean => tone(report) === "bad";

/** Policies with problems first, otherwise in the same order. */
export const worstFirst = (reports: PolicyReport[]): PolicyReport[] =>
  [...reports].sort((a, b) => Number(hasProblem(b)) - Number(hasProblem(a)));

/** The ports to which copies go, as far as known. */
export function monitorPorts(report: PolicyReport): MonitorPort[] {
  if (report.monitors) return report.monitors;
  if (report.monitor) return [report.monitor];
  return report.copied.map((copied) => copied.monitor);
}

/** Whether the port is OpenFlow's CONTROLLER of any switch, whose copies this page shows. */
export const isController = (port: MonitorPort): boolean => port.port === OFPP_CONTROLLER;

/** `watch0 (0x1/3)`. */
export function monitorText(port: MonitorPort): string {
  if (isController(port)) return HERE;
  const place = `${port.switch}/${port.port}`;
  return port.name ? `${port.name} (${place})` : place;
}

const OFPP_CONTROLLER = 0xfffffffd;

/** The paths of a policy's copies; empty if the controller does not report them. */
export function paths(report: PolicyReport): CopyPath[] {
  if (!Array.isArray(report.path)) return [];
  return report.path.flatMap((path) => {
    const monitor = path?.monitor as MonitorPort | undefined;
    const hops = (path?.hops ?? path?.switches ?? []) as (Hop | string)[];
    const asHop = (hop: Hop | string): Hop => (typeof hop === "string" ? { switch: hop } : hop);
    return monitor ? [{ monitor, hops: hops.map(asHop) }] : [];
  });
}

/** Expiry of a policy, in milliseconds since 1970; `undefined` if it does not expire. */
export function endsAt(report: PolicyReport): number | undefined {
  const text = report.expires_at ?? report.policy.expires;
  const at = typeof text === "string" ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? undefined : at;
}
