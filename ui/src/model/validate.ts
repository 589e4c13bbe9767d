// Validates a policy while it is typed, with the controller's rules.
//
// The controller decides: it may still refuse a policy that passes here, in a dry run or when
// saving.
import { TRAFFIC, contract } from "./policy";
import { isSchedule } from "./schedule";
import { isWholePrefix, parseMac, parsePrefix } from "./address";
import type { TapPolicy } from "../api/types";

/** The form's fields as typed: those of a policy, and `stall`, which is part of its delivery. */
export type Draft = Record<Field, string>;
export type Field = (typeof FIELDS)[number];
export const FIELDS = [
  "name",
  "monitor",
  ...TRAFFIC,
  "direction",
  "delivery",
  "stall",
  "expires",
  "schedule",
  "snaplen",
  "sample",
  "tags",
  "point",
  "transport",
  "priority",
  "owner",
  "reason",
] as const;

/** Errors or warnings by field. */
export type Problems = Partial<Record<Field, string>>;

export const emptyDraft = (): Draft => {
  const fields = Object.fromEntries(FIELDS.map((field) => [field, ""])) as Draft;
  return { ...fields, direction: "both", ...DEFAULTS };
};

/** Checks all fields; an empty result means that the policy can be sent. */
export function problems(draft: Draft): Problems {
  const found: Problems = {};
  for (const field of FIELDS) {
    const text = draft[field].trim();
    const problem = CHECKS[field]?.(text, draft);
    if (problem) found[field] = problem;
  }
  return found;
}

/** Warnings about a valid policy without effect: link-local frames are not copied. */
export function warnings(draft: Draft): Problems {
  const address = parseMac(draft["dst-mac"].trim());
  // As in the controller: the destination address decides if there is one, otherwise the type.
  if (address) return isForBridges(address) ? { "dst-mac": KEPT } : {};
  const type = typeNumber(draft["eth-type"]);
  return type !== undefined && LINK_TYPES.has(type) ? { "eth-type": KEPT } : {};
}

/** Converts a draft without problems to a policy; `rest` has fields that are not in the form. */
export function toPolicy(draft: Draft, rest: Partial<TapPolicy> = {}): TapPolicy {
  const policy: Record<string, unknown> = { ...rest };
  for (const field of FIELDS) {
    if (field === "stall") continue;
    delete policy[field];
    const text = draft[field].trim();
    if (text !== "") policy[field] = NUMBERS.has(field) && /^\d+$/.test(text) ? Number(text) : text;
  }
  const monitors = list(draft.monitor);
  policy.monitor = monitors.length === 1 ? monitors[0] : monitors;
  const stall = draft.stall.trim();
  if (policy.delivery === "lossless" && stall !== "") policy.delivery = `lossless:${stall}`;
  for (const [field, value] of Object.entries(DEFAULTS))
    if (policy[field] === value) delete policy[field];
  return policy as TapPolicy;
}

/** Converts a policy to a draft for editing. */
export function toDraft(policy: TapPolicy): Draft {
  const draft = emptyDraft();
  for (const field of FIELDS) {
    const value = policy[field];
    if (value !== undefined && value !== null) draft[field] = [value].flat().join(", ");
  }
  // The default point of copies depends on the transport.
  if (policy.point === undefined && policy.transport === "rewrite") draft.point = "egress";
  return withStall(draft);
}

/** Splits a delivery such as `lossless:20` into the form's two fields. */
export function withStall(draft: Draft): Draft {
  const { word, stall } = contract(draft.delivery);
  return stall === undefined ? draft : { ...draft, delivery: word, stall };
}

/** Splits a list at commas and blanks. */
export const list = (text: string): string[] => text.split(/[\s,]+/).filter((part) => part !== "");

type Check = (text: string, draft: Draft) => string | undefined;

const CHECKS: Partial<Record<Field, Check>> = {
  name(text) {
    if (text === "") return "Give the policy a name.";
    if ([...text].length > 64) return "At most 64 characters.";
    if (text === "." || text === "..") return "A name cannot be “.” or “..”.";
    return UNSEEN.test(text) ? "Remove the invisible characters." : undefined;
  },
  monitor(text) {
    const monitors = list(text);
    if (monitors.length === 0)
      return "Name a monitor: a port (0x1/3), its name, or a host's address.";
    const twice = monitors.find((name, index) => monitors.indexOf(name) !== index);
    if (monitors.length > MOST_MONITORS) return `At most ${MOST_MONITORS} monitors.`;
    return twice ? `${twice} is listed twice.` : undefined;
  },
  "src-mac": (text) => macProblem(text, true),
  "dst-mac"(text, draft) {
    const isGroup = ((parseMac(text)?.[0] ?? 0) & 1) === 1;
    if (isGroup && draft.direction === "both")
      return "A group address never sends: use the forward direction.";
    if (draft.point === "egress") {
      if (text === "" || isGroup) return "Copying at the egress requires the address of one host.";
      if (draft.direction === "both")
        return "Copying at the egress works in the forward direction only.";
    }
    return macProblem(text, false);
  },
  "src-ip": (text, draft) => prefixProblem(text, draft),
  "dst-ip"(text, draft) {
    const [src, dst] = [parsePrefix(draft["src-ip"].trim()), parsePrefix(text)];
    if (src && dst && src.bytes.length !== dst.bytes.length) {
      return "Source and destination must both be IPv4 or both be IPv6.";
    }
    return prefixProblem(text, draft);
  },
  "ip-proto"(text) {
    if (text === "" || PROTOCOLS.includes(text.toLowerCase())) return undefined;
    const isNumber = /^\d+$/.test(text) && Number(text) <= 255;
    return isNumber ? undefined : `Expected ${PROTOCOLS.join(", ")} or a number up to 255.`;
  },
  "eth-type": typeProblem,
  vlan(text) {
    if (text === "" || ["untagged", "tagged", "any"].includes(text)) return undefined;
    const isId = (part: string) => /^\d+$/.test(part) && Number(part) >= 1 && Number(part) <= 4094;
    return isId(text) ? undefined : "A VLAN id from 1 to 4094, tagged or untagged.";
  },
  "src-port": portProblem,
  "dst-port": portProblem,
  delivery(text) {
    const isKnown = /^(best-effort|lossless|sample-on-pressure)$/.test(text);
    return isKnown ? undefined : "Expected best-effort, lossless or sample-on-pressure.";
  },
  // The form hides this field for other contracts, and does not send it.
  stall: (text, draft) =>
    draft.delivery === "lossless" ? numberProblem(text, 1, 65535, "milliseconds") : undefined,
  expires(text) {
    if (text === "" || isSpan(text)) return undefined;
    const at = /^\d{4}-\d\d-\d\dT.*(z|[+-]\d\d:\d\d)$/i.test(text) ? Date.parse(text) : NaN;
    if (Number.isNaN(at))
      return "A duration such as 30m, 2h30m or 1w, or a time such as 2027-01-31T18:00:00Z.";
    return at <= Date.now() ? "This time is in the past." : undefined;
  },
  schedule: (text) =>
    text === "" || isSchedule(text)
      ? undefined
      : "Days and hours in UTC: Mon-Fri 08:00-18:00; several separated by semicolons.",
  owner: (text) => lengthProblem(text),
  reason: (text) => lengthProblem(text),
  point: (text, draft) =>
    text !== "egress" && draft.transport === "rewrite"
      ? "A rewritten destination MAC requires copying at the egress."
      : undefined,
  snaplen: (text) => numberProblem(text, 14, 65535, "bytes"),
  sample(text) {
    const isRatio = text === "" || /^(1\/)?[1-9]\d*$/.test(text);
    return isRatio ? undefined : "A ratio such as 1/100.";
  },
  priority: (text) => numberProblem(text, 0, 255, ""),
};

function macProblem(text: string, isSource: boolean): string | undefined {
  if (text === "") return undefined;
  const mac = parseMac(text);
  if (!mac) return "Six hexadecimal bytes: 02:00:00:00:00:01.";
  if (mac.every((byte) => byte === 0)) return "No host has this address.";
  return isSource && mac[0]! & 1 ? "A group address cannot be a source." : undefined;
}

function prefixProblem(text: string, draft: Draft): string | undefined {
  if (text === "") return undefined;
  const prefix = parsePrefix(text);
  if (!prefix) return "An IPv4 or IPv6 address or prefix: 10.0.0.0/24, 2001:db8::/32.";
  if (!isWholePrefix(prefix)) return "All bits after the prefix must be zero.";
  const [proto, isV4] = [draft["ip-proto"].trim().toLowerCase(), prefix.bytes.length === 4];
  if (proto === "icmp" && !isV4) return "This is IPv6, which has no icmp: use icmpv6.";
  return proto === "icmpv6" && isV4 ? "This is IPv4, which has no icmpv6: use icmp." : undefined;
}

function portProblem(text: string, draft: Draft): string | undefined {
  if (text === "") return undefined;
  const [, low, high = low] = /^(\d+)(?:-(\d+))?$/.exec(text) ?? [];
  if (low === undefined || Number(high) > 65535)
    return "A port from 0 to 65535, or a range: 8000-8010.";
  if (Number(low) > Number(high)) return "The range ends before it begins.";
  const proto = draft["ip-proto"].trim().toLowerCase();
  const hasPorts = ["", "tcp", "udp", "sctp", "6", "17", "132"].includes(proto);
  return hasPorts ? undefined : `${proto} has no ports: use tcp, udp or sctp.`;
}

function typeProblem(text: string, draft: Draft): string | undefined {
  if (text === "") return undefined;
  const type = typeNumber(text);
  if (type === undefined) return `Expected ${TYPES}, lldp or another number.`;
  if (TAG_TYPES.has(type)) return "This is the EtherType of a VLAN tag: use the VLAN field.";
  if (type < 0x600) return "This is a length, not a type: types begin at 0x600.";
  const isIp = type === IPV4 || type === IPV6;
  const without = [...(isIp || type === ARP ? [] : ADDRESSES), ...(isIp ? [] : INSIDE)];
  const other = without.find((field) => draft[field].trim() !== "");
  return other ? `Frames of this type have no ${other}.` : familyProblem(type, draft);
}

/** Whether addresses and protocol match the IP version of the frame type. */
function familyProblem(type: number, draft: Draft): string | undefined {
  const [size, family] = type === IPV6 ? [16, "IPv6"] : [4, "IPv4"];
  const isOdd = (field: Field) => {
    const prefix = parsePrefix(draft[field].trim());
    return prefix !== undefined && prefix.bytes.length !== size;
  };
  const odd = ADDRESSES.find(isOdd);
  if (odd) return `Frames of this type have ${family} addresses, but ${odd} is not one.`;
  const [wrong, right] = type === IPV6 ? ["icmp", "icmpv6"] : ["icmpv6", "icmp"];
  const proto = draft["ip-proto"].trim().toLowerCase();
  return proto === wrong ? `${family} has no ${wrong}: use ${right}.` : undefined;
}

/** A duration such as `1w2d3h4m5s`: each unit at most once, in this order. */
function isSpan(text: string): boolean {
  const counts = /^(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(text)?.slice(1);
  const seconds = counts?.reduce((sum, count, i) => sum + Number(count ?? 0) * UNITS[i]!, 0);
  return text !== "" && seconds !== undefined && seconds <= MOST_SECONDS;
}

function numberProblem(
  text: string,
  least: number,
  most: number,
  unit: string,
): string | undefined {
  if (text === "") return undefined;
  const isIn = /^\d+$/.test(text) && Number(text) >= least && Number(text) <= most;
  return isIn ? undefined : `A number from ${least} to ${most}${unit && ` ${unit}`}.`;
}

const lengthProblem = (text: string): string | undefined =>
  [...text].length > MOST_TEXT ? `At most ${MOST_TEXT} characters.` : undefined;

/** 01:80:c2:00:00:00 to 01:80:c2:00:00:0f (IEEE 802.1Q, 8.6.3). */
const isForBridges = (mac: number[]): boolean =>
  [1, 0x80, 0xc2, 0, 0].every((byte, index) => mac[index] === byte) && mac[5]! < 16;

/** The EtherType for a name or number. */
function typeNumber(text: string): number | undefined {
  const word = text.trim().toLowerCase();
  const type = TYPE_NAMES.get(word) ?? (/^(0x[0-9a-f]+|\d+)$/.test(word) ? Number(word) : NaN);
  return type <= 0xffff ? type : undefined;
}

/** Examples of types. LLDP is left out: it is copied only if sent to an unusual address. */
export const TYPES = "arp, ipv4, ipv6, 0x88b5";

const [ARP, IPV4, IPV6, LLDP] = [0x0806, 0x0800, 0x86dd, 0x88cc];
const TYPE_NAMES = new Map([
  ["arp", ARP],
  ["ipv4", IPV4],
  ["ipv6", IPV6],
  ["lldp", LLDP],
]);
/** EtherTypes of VLAN tags: 802.1Q, 802.1ad, and the older 0x9100. */
const TAG_TYPES = new Set([0x8100, 0x88a8, 0x9100]);
/** Fields of IP and ARP packets, and fields of IP packets only. */
const ADDRESSES = ["src-ip", "dst-ip"] as const;
const INSIDE = ["ip-proto", "src-port", "dst-port"] as const;
/** LLDP and the slow protocols such as LACP, which are sent to link-local addresses. */
const LINK_TYPES = new Set([LLDP, 0x8809]);
/** The controller's note on such a policy. */
export const KEPT =
  "frames to 01:80:c2:00:00:0x (LLDP, STP, LACP, 802.1X) are link-local: " +
  "switches do not forward them, and they are not copied";

/** Invisible characters: control and format characters, line and paragraph separators (Unicode). */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

const MOST_MONITORS = 16;
/** Maximum characters of owner and reason. */
const MOST_TEXT = 256;
/** Seconds in a week, day, hour, minute and second. */
const UNITS = [604_800, 86_400, 3600, 60, 1];
/** Ten years; longer durations are typing errors. */
const MOST_SECONDS = 10 * 366 * 86_400;

/** Default values, which are omitted from the policy. */
const DEFAULTS = {
  delivery: "best-effort",
  tags: "keep",
  point: "ingress",
  transport: "svlan",
} as const;

export const PROTOCOLS = ["tcp", "udp", "icmp", "icmpv6", "sctp"];
const NUMBERS = new Set<Field>(["src-port", "dst-port", "vlan", "snaplen", "priority"]);
