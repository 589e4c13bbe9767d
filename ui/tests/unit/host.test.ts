import assert from "node:assert/strict";
import { test } from "node:test";
import type { HostReport } from "../../src/api/types";
import { addresses, pairs, tapped, unproven, vlans } from "../../src/model/host";

const host: HostReport = {
  switch: "0x1",
  port: "1",
  port_name: "a",
  mac: "02:00:00:00:00:01",
  vlan: null,
  addresses: [],
};

test("a host's stack of tags is told from the outside", () => {
  assert.equal(vlans({ ...host, vlan: null }), "");
  assert.equal(vlans({ ...host, vlan: 100 }), "100");
  assert.equal(vlans({ ...host, vlan: 100, inner_vlans: [20, 7] }), "100.20.7");
});

test("addresses that only packets tell are said to be unproven", () => {
  const told = { ...host, addresses: ["10.0.0.1", "fe80::1"] };
  assert.equal(addresses(told), "10.0.0.1, fe80::1");
  assert.equal(unproven([host, told]), undefined);
  const sends = { ...told, unproven_addresses: ["10.0.0.1"] };
  assert.equal(addresses(sends), "10.0.0.1 (unproven), fe80::1");
  assert.match(unproven([host, sends])!, /without ARP/);
});

test("a policy for a host is for all that it says, whatever its addresses", () => {
  const name = "host 10.0.0.1";
  const direction = "both";
  const dual = { ...host, addresses: ["10.0.0.1", "fe80::1"] };
  const common = { "src-mac": host.mac, direction };
  assert.deepEqual(tapped(dual), { ...common, vlan: "untagged", name });
  assert.deepEqual(tapped({ ...dual, vlan: 100 }), { ...common, vlan: "100", name });
  assert.equal(tapped(host).name, `host ${host.mac}`);
});

test("hosts at the ends of a link are paired by family, over all their addresses", () => {
  const at = (id: string, ...addresses: string[]) => ({ ...host, switch: id, addresses });
  const left = at("0x1", "10.0.0.1", "fe80::1");
  assert.deepEqual(pairs([left], [at("0x2", "fe80::2", "10.0.0.2")]), [
    ["10.0.0.1", "10.0.0.2"],
    ["fe80::1", "fe80::2"],
  ]);
  assert.deepEqual(pairs([left], [at("0x2", "fe80::2")]), [["fe80::1", "fe80::2"]]);
  assert.deepEqual(pairs([at("0x1", "10.0.0.1")], [at("0x2", "fe80::2")]), []);
});
