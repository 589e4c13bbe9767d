// Texts about switches.
import type { SwitchReport } from "../api/types";
import { plural } from "./format";
import type { Verdict } from "./policy";

/** The state of a switch, in the words of `tapswitch show switches`. */
export function condition({
  is_connected,
  is_silent,
  through,
}: Pick<SwitchReport, "is_connected" | "is_silent" | "through">): Verdict {
  if (!is_connected)
    return { tone: "bad", word: "lost", sentence: "It keeps forwarding with its current rules." };
  if (is_silent) return { tone: "wait", word: "silent", sentence: SILENT };
  if (through != null) return { tone: "good", word: "relayed", sentence: relayed(through) };
  return { tone: "good", word: "connected", sentence: "" };
}

const relayed = (through: string): string =>
  `It is connected to controller ${through}, and not to the leader. ` +
  "If it should reach the leader, look at its list of controllers, and at the path to the leader.";

const SILENT =
  "It does not report its counters: the last reported values are used. Look for an overloaded " +
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
    "a host or an address did not fit: it is reached by flooding. Look for a port with thousands of them.",
  ],
  [
    "address_conflicts",
    "a claim of another host's address was ignored. Look for a duplicate address, or a host that forges ARP or neighbour discovery.",
  ],
  [
    "drifted",
    "a rule or group differed from what was installed, and was restored. Look for another controller or tool that changes them; the controller's log says which.",
  ],
  [
    "lldp_forged",
    "an LLDP frame was forged, or came from another controller, and was ignored. Look for a second controller, or a host that forges links.",
  ],
  [
    "lldp_late",
    "an LLDP frame of this controller arrived too late to prove a link. Look for an overloaded link or switch, or a host that replays old frames.",
  ],
];

type Counts = Pick<
  SwitchReport,
  "hosts_refused" | "address_conflicts" | "drifted" | "lldp_forged" | "lldp_late"
>;
