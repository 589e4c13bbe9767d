// Hosts, in words.
import type { HostReport } from "../api/types";

/** The stack of its VLAN tags from the outside, as in 100.20; empty when it has none. */
export function vlans(host: HostReport): string {
  if (host.vlan === null) return "";
  return [host.vlan, ...(host.inner_vlans ?? [])].join(".");
}
