// Texts about hosts.
import type { HostReport } from "../api/types";

/** The VLAN tags of a host, outermost first, such as 100.20; empty without tags. */
export function vlans(host: HostReport): string {
  if (host.vlan === null) return "";
  return [host.vlan, ...(host.inner_vlans ?? [])].join(".");
}

/** The IP addresses of a host, with unproven ones marked. */
export function addresses(host: HostReport): string {
  const unproven = new Set(host.unproven_addresses);
  return host.addresses.map((a) => (unproven.has(a) ? `${a} (unproven)` : a)).join(", ");
}

/** Explains "unproven" if any of the hosts has such an address. */
export const unproven = (hosts: HostReport[]): string | undefined =>
  hosts.some((host) => host.unproven_addresses?.length)
    ? "Unproven: learned only from the source of packets, without ARP or neighbour discovery."
    : undefined;

/** Form values of a policy for all traffic of a host in both directions, IPv4 and IPv6. */
export function tapped(host: HostReport): Record<string, string> {
  return {
    "src-mac": host.mac,
    vlan: host.vlan === null ? "untagged" : String(host.vlan),
    direction: "both",
    name: `host ${host.addresses[0] ?? host.mac}`,
  };
}

/** Pairs of addresses of hosts at two ends, a few of each address family. */
export function pairs(left: HostReport[], right: HostReport[]): [string, string][] {
  return [false, true].flatMap((isV6) => {
    const [from, to] = [left, right].map((hosts) =>
      hosts
        .flatMap((host) => host.addresses)
        .filter((address) => address.includes(":") === isV6)
        .slice(0, MOST_AT_END),
    ) as [string[], string[]];
    return from.flatMap((a) => to.map((b): [string, string] => [a, b]));
  });
}

const MOST_AT_END = 3;
