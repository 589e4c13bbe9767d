// Texts about switches.
import type { SwitchReport } from "../api/types";
import { plural } from "./format";
import type { Verdict } from "./policy";

/** The state of a switch, in the words of `tapswitch show switches`. */
export function condition({
  is_connected,
  is_silent,
}: Pick<SwitchReport, "is_connected" | "is_silent">): Verdict {
  if (!is_connected)
    return { tone: "bad", word: "lost", sentence: "It keeps forwarding with its current rules." };
  if (is_silent) return { tone: "wait", word: "silent", sentence: SILENT };
  return { tone: "good", word: "connected", sentence: "" };
}

const SILENT =
  "It does not report its counters; the last reported values still count. Look for an overloaded " +
  "switch, or an overloaded path to it.";

/** Claims that the controller rejected or changes that it reverted, each with a remedy. */
export const troubles = (report: SwitchReport): string[] =>
  TROUBLES.flatMap(([key, words]) => {
    const times = report[key] ?? 0;
    return times > 0 ? [`${plural(times, "time")} ${words}`] : [];
  });

/** The texts of `tapswitch show switches`. */
const TROUBLES: [keyof Counts, string][] = [
  [
    "hosts_refused",
    "a host or an address found no room: it is reached by flooding. Look for a port with thousands of them.",
  ],
  [
    "address_conflicts",
    "an address was claimed that another host has, and that was not believed. Look for a host that is set up twice, or forges ARP or neighbour discovery.",
  ],
  [
    "drifted",
    "a rule or group was not as told, and was put right. Look for somebody else who changes them; the controller's log says which.",
  ],
  [
    "lldp_forged",
    "LLDP was forged, or of another controller, and made no link. Look for a second controller, or a host that makes up links.",
  ],
  [
    "lldp_late",
    "LLDP of the controller's own was under way for too long to prove a link. Look for a link or a switch that is overloaded, or a host that sends old frames again.",
  ],
];

type Counts = Pick<
  SwitchReport,
  "hosts_refused" | "address_conflicts" | "drifted" | "lldp_forged" | "lldp_late"
>;
