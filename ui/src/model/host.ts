// Hosts, in words.
import type { HostReport } from "../api/types";

/** The stack of its VLAN tags from the outside, as in 100.20; empty when it has none. */
export function vlans(host: HostReport): string {
  if (host.vlan === null) return "";
  return [host.vlan, ...(host.inner_vlans ?? [])].join(".");
}

/** Its IP addresses, and which of them it did not tell itself. */
export function addresses(host: HostReport): string {
  const unproven = new Set(host.unproven_addresses);
  return host.addresses.map((a) => (unproven.has(a) ? `${a} (unproven)` : a)).join(", ");
}

/** What that means, where there are such. */
export const unproven = (hosts: HostReport[]): string | undefined =>
  hosts.some((host) => host.unproven_addresses?.length)
    ? "Unproven: the host sent packets from it, and told it by no ARP or neighbour discovery."
    : undefined;

/** What a new policy begins with that is for all that a host says and hears, of whatever family. */
export function tapped(host: HostReport): Record<string, string> {
  return {
    "src-mac": host.mac,
    vlan: host.vlan === null ? "untagged" : String(host.vlan),
    direction: "both",
    name: `host ${host.addresses[0] ?? host.mac}`,
  };
}

/** Addresses of hosts at one end with those of hosts at another that they can speak to, some of each family. */
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
