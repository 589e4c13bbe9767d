import assert from "node:assert/strict";
import { test } from "node:test";
import { vlans } from "../../src/model/host";

test("a host's stack of tags is told from the outside", () => {
  const host = {
    switch: "0x1",
    port: "1",
    port_name: "a",
    mac: "02:00:00:00:00:01",
    addresses: [],
  };
  assert.equal(vlans({ ...host, vlan: null }), "");
  assert.equal(vlans({ ...host, vlan: 100 }), "100");
  assert.equal(vlans({ ...host, vlan: 100, inner_vlans: [20, 7] }), "100.20.7");
});
