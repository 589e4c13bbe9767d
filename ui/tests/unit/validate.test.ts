import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  type Draft,
  type Field,
  KEPT,
  TYPES,
  emptyDraft,
  problems,
  toDraft,
  toPolicy,
  warnings,
  withStall,
} from "../../src/model/validate";

const draft = (change: Partial<Draft> = {}): Draft => ({
  ...emptyDraft(),
  name: "web",
  monitor: "0x1/3",
  ...change,
});

test("a name and a monitor are enough", () => {
  assert.deepEqual(problems(draft()), {});
  const forward = toPolicy(draft({ direction: "forward" }));
  assert.deepEqual(forward, { name: "web", monitor: "0x1/3", direction: "forward" });
  assert.deepEqual(Object.keys(problems(emptyDraft())), ["name", "monitor"]);
});

test("schedules are those that the controller reads", () => {
  const right = [
    "",
    "Mon",
    "mon-fri",
    "Sat,Sun 10:00-12:00",
    "22:00-06:00",
    "Fri-Mon  00:00-24:00",
  ];
  const more = ["Mon-Fri 08:00-18:00; Sat 10:00-12:00", Array(16).fill("Mon").join(";")];
  for (const schedule of [...right, ...more])
    assert.deepEqual(problems(draft({ schedule })), {}, schedule);
  const wrong = ["Foo", "Mon-Fri-Sat", "8:00-18:00", "Mon 08:00", "08:60-09:00", "24:00-25:00"];
  const worse = ["08:00-08:00", "24:00-08:00", "Mon;", "Mon-Fri, 08:00-18:00"];
  for (const schedule of [...wrong, ...worse, Array(17).fill("Mon").join(";")])
    assert.match(problems(draft({ schedule })).schedule ?? "", /Mon-Fri 08:00/, schedule);
});

test("each contradiction is said at its field", () => {
  const cases: [Partial<Draft>, Field, RegExp][] = [
    [{ name: "x".repeat(65) }, "name", /64/],
    [{ name: "." }, "name", /cannot be/],
    [{ name: ".." }, "name", /cannot be/],
    [{ name: "web\u200b" }, "name", /invisible/],
    [{ name: "\u202egpj" }, "name", /invisible/],
    [{ name: "a\u2028b" }, "name", /invisible/],
    [{ name: "a\tb" }, "name", /invisible/],
    [{ monitor: "a, a" }, "monitor", /twice/],
    [{ "src-mac": "1" }, "src-mac", /Six/],
    [{ "src-mac": "01:00:5e:00:00:01" }, "src-mac", /group/],
    [{ "dst-mac": "01:00:5e:00:00:01", direction: "both" }, "dst-mac", /never sends/],
    [{ "dst-mac": "00:00:00:00:00:00" }, "dst-mac", /No host/],
    [{ "src-ip": "10.0.0.1/24" }, "src-ip", /zero/],
    [{ "src-ip": "10.0.0" }, "src-ip", /address or prefix/],
    [{ "src-ip": "10.0.0.1", "dst-ip": "::1" }, "dst-ip", /both be IPv6/],
    [{ "src-ip": "::1", "ip-proto": "icmp" }, "src-ip", /use icmpv6/],
    [{ "dst-ip": "10.0.0.1", "ip-proto": "icmpv6" }, "dst-ip", /use icmp/],
    [{ "ip-proto": "tpc" }, "ip-proto", /Expected/],
    [{ vlan: "4095" }, "vlan", /4094/],
    [{ vlan: "0" }, "vlan", /4094/],
    [{ "eth-type": "ipx" }, "eth-type", /Expected/],
    [{ "eth-type": "arp", "dst-port": "80" }, "eth-type", /no dst-port/],
    [{ "eth-type": "arp", "ip-proto": "tcp" }, "eth-type", /no ip-proto/],
    [{ "eth-type": "0x88b5", "src-ip": "10.0.0.1" }, "eth-type", /no src-ip/],
    [{ "eth-type": "arp", "src-ip": "::1" }, "eth-type", /IPv4/],
    [{ "eth-type": "2048", "dst-ip": "::1" }, "eth-type", /IPv4/],
    [{ "eth-type": "ipv6", "dst-ip": "10.0.0.1" }, "eth-type", /IPv6/],
    [{ "eth-type": "ipv6", "ip-proto": "icmp" }, "eth-type", /icmpv6/],
    [{ "eth-type": "ipv4", "ip-proto": "icmpv6" }, "eth-type", /icmp/],
    [{ "eth-type": "0x8100" }, "eth-type", /tag/],
    [{ "eth-type": "0x5ff" }, "eth-type", /length/],
    [{ "eth-type": "65536" }, "eth-type", /Expected/],
    [{ "eth-type": "0x10000" }, "eth-type", /Expected/],
    [{ priority: "256" }, "priority", /255/],
    [{ "dst-port": "65536" }, "dst-port", /65535/],
    [{ "dst-port": "90-80" }, "dst-port", /ends before/],
    [{ "dst-port": "80", "ip-proto": "icmp" }, "dst-port", /no ports/],
    [{ delivery: "at-once" }, "delivery", /Expected/],
    [{ delivery: "lossless", stall: "0" }, "stall", /from 1 to 65535/],
    [{ delivery: "lossless", stall: "65536" }, "stall", /from 1 to 65535/],
    [{ delivery: "lossless", stall: "1.5" }, "stall", /from 1 to 65535/],
    [{ expires: "soon" }, "expires", /30m/],
    [{ expires: "2001-01-01T00:00:00Z" }, "expires", /past/],
    [{ expires: "30min" }, "expires", /2h30m/],
    [{ expires: "1h 30m" }, "expires", /2h30m/],
    [{ expires: "30m2h" }, "expires", /2h30m/],
    [{ expires: "1h1h" }, "expires", /2h30m/],
    [{ expires: "9999w" }, "expires", /2h30m/],
    [{ expires: "2999-01-31T18:00:00" }, "expires", /2h30m/],
    [{ sample: "0" }, "sample", /1\/100/],
    [{ snaplen: "1" }, "snaplen", /14/],
    [{ reason: "x".repeat(257) }, "reason", /256/],
    [{ owner: "x".repeat(257) }, "owner", /256/],
    [{ monitor: Array.from({ length: 17 }, (_, i) => `0x1/${i}`).join() }, "monitor", /16/],
    [{ point: "egress" }, "dst-mac", /one host/],
    [{ point: "egress", "dst-mac": "02:00:00:00:00:01" }, "dst-mac", /forward direction/],
    [{ transport: "rewrite" }, "point", /at the egress/],
  ];
  for (const [change, field, words] of cases) {
    const found = problems(draft(change));
    assert.match(found[field] ?? "", words, JSON.stringify(change));
    assert.deepEqual(Object.keys(found), [field], JSON.stringify(change));
  }
});

test("what is right passes", () => {
  const right: Partial<Draft>[] = [
    { "src-ip": "10.0.0.0/24", "dst-ip": "10.0.1.7", "ip-proto": "tcp", "dst-port": "80" },
    { "dst-ip": "2001:db8::/32" },
    { vlan: "untagged" },
    { vlan: "100" },
    { vlan: "tagged" },
    { "eth-type": "0x88cc" },
    { "eth-type": "35020" },
    { "eth-type": "arp", "src-ip": "10.0.0.1", "dst-ip": "10.0.0.0/24" },
    { "eth-type": "2054", "src-ip": "10.0.0.1" },
    { "eth-type": "2048", "dst-port": "80" },
    { "eth-type": "0x86DD", "src-ip": "::1", "ip-proto": "58" },
    { name: "a b-ü" },
    { name: "..." },
    { "src-port": "8000-8010" },
    { delivery: "lossless" },
    { delivery: "lossless", stall: "65535" },
    // Hidden fields are not sent, so they cannot be wrong.
    { delivery: "best-effort", stall: "soon" },
    { expires: "30m" },
    { expires: "1h30m" },
    { expires: "1w" },
    { expires: "1w2d3h4m5s" },
    { expires: "2999-01-31T18:00:00+01:00" },
    { sample: "1/100" },
    { "ip-proto": "47" },
    { "dst-mac": "01:00:5e:00:00:01", direction: "forward" },
    { point: "egress", "dst-mac": "02:00:00:00:00:01", direction: "forward" },
    {
      transport: "rewrite",
      point: "egress",
      "dst-mac": "02:00:00:00:00:01",
      direction: "forward",
    },
    { tags: "strip" },
    { monitor: "watch0, 10.0.0.9" },
  ];
  for (const change of right) assert.deepEqual(problems(draft(change)), {}, JSON.stringify(change));
});

test("a policy goes through the form unharmed, with fields that the form does not know", () => {
  const policy = {
    name: "web",
    monitor: ["watch0", "10.0.0.9"],
    "src-ip": "10.0.0.0/24",
    "dst-port": 80,
    direction: "both",
    delivery: "lossless",
    point: "egress",
    transport: "rewrite",
    tags: "strip",
    "of-tomorrow": 7,
  };
  assert.deepEqual(toPolicy(toDraft(policy), policy), policy);
  const { point, ...unsaid } = policy;
  assert.equal(toDraft(unsaid).point, point, "where its transport takes them");
  const forward = { name: "one", monitor: "3", direction: "forward" };
  assert.deepEqual(toPolicy(toDraft(forward), forward), forward);
  const ranged = {
    name: "r",
    monitor: "3",
    "dst-port": "8000-8010",
    vlan: "untagged",
    direction: "both",
  };
  assert.deepEqual(toPolicy(toDraft(ranged), ranged), ranged);
});

test("the stall bound of a lossless policy is a field of its own, and goes back to where it was", () => {
  const policy = { name: "web", monitor: "3", direction: "both", delivery: "lossless:20" };
  const { delivery, stall } = toDraft(policy);
  assert.deepEqual([delivery, stall], ["lossless", "20"]);
  assert.deepEqual(toPolicy(toDraft(policy), policy), policy);
  const changed = (change: Partial<Draft>) => toPolicy({ ...toDraft(policy), ...change }, policy);
  assert.equal(changed({ stall: " 50 " }).delivery, "lossless:50");
  assert.equal(changed({ stall: "" }).delivery, "lossless");
  assert.equal(changed({ delivery: "sample-on-pressure" }).delivery, "sample-on-pressure");
  assert.equal(changed({ delivery: "best-effort" }).delivery, undefined);
  // A link may prefill the form; an invalid value is reported at its field.
  const asked = withStall(draft({ delivery: "lossless:0" }));
  assert.deepEqual(Object.keys(problems(asked)), ["stall"]);
});

test("what bridges keep to a link is known while it is typed, as the controller knows it", () => {
  const cases: [Partial<Draft>, Field?][] = [
    [{}],
    [{ "eth-type": "arp" }],
    [{ "eth-type": "0x8" }],
    [{ "dst-mac": "01:80:c2:00:00:10" }],
    [{ "dst-mac": "01:80:c2:00:00" }],
    [{ "eth-type": "lldp", "dst-mac": "02:00:00:00:00:01" }],
    [{ "eth-type": "LLDP" }, "eth-type"],
    [{ "eth-type": " 0x88cc " }, "eth-type"],
    [{ "eth-type": "0x8809" }, "eth-type"],
    [{ "dst-mac": "01:80:C2:00:00:0E" }, "dst-mac"],
    [{ "dst-mac": "01-80-c2-00-00-00" }, "dst-mac"],
  ];
  for (const [change, field] of cases) {
    const wanted = field ? { [field]: KEPT } : {};
    assert.deepEqual(warnings(draft(change)), wanted, JSON.stringify(change));
  }
  const source = readFileSync("../crates/control/src/control/policies/frames.rs", "utf8");
  assert.ok(source.replace(/\\\n\s*/g, "").includes(`"${KEPT}"`), "the controller's words");
});

test("what the form proposes as a type of frames can be copied", () => {
  for (const type of TYPES.split(", ")) {
    const one = draft({ "eth-type": type });
    assert.deepEqual([problems(one), warnings(one)], [{}, {}], type);
  }
});
