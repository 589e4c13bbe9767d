import assert from "node:assert/strict";
import { test } from "node:test";
import type { PolicyReport } from "../../src/api/types";
import {
  contractText,
  pointText,
  isShownHere,
  ledger,
  monitorText,
  notShownHere,
  owner,
  paths,
  shownHere,
  state,
  tone,
  totals,
  traffic,
} from "../../src/model/policy";
import { Rates } from "../../src/model/rates";

const monitor = { switch: "0x1", port: 3, name: "watch0" };

function report(change: Partial<PolicyReport> = {}): PolicyReport {
  return {
    policy: { name: "web", monitor: "watch0", "src-ip": "10.0.0.1", direction: "both" },
    state: { is: "active" },
    matched: { packets: 12, bytes: 1200 },
    copied: [
      {
        monitor,
        packets: 12,
        bytes: 1200,
        delivered: { packets: 9, bytes: 900 },
        flooded: 1,
        in_flight: 0,
        dropped: { egress_full: 2 },
      },
    ],
    adds_up: true,
    is_complete: true,
    ...change,
  };
}

test("a ledger that does not add up is bad, whatever the state", () => {
  assert.equal(tone(report({ adds_up: false })), "bad");
  assert.equal(ledger(report({ adds_up: false })).word, "does not add up");
  assert.equal(ledger(report({ is_complete: false })).word, "incomplete");
  assert.equal(ledger(report()).word, "adds up, drops");
});

test("a failed policy is bad, and says why", () => {
  const failed = report({ state: { is: "failed", reason: "the group table is full" } });
  assert.equal(tone(failed), "bad");
  assert.equal(state(failed).sentence, "the group table is full");
});

test("a policy that reaches some of its monitors is bad, and says which it does not", () => {
  const partial = report({
    state: { is: "partial", reason: "1 of 2 monitors reached: 0x2 is lost" },
  });
  assert.deepEqual([tone(partial), state(partial).word], ["bad", "partial"]);
  assert.match(state(partial).sentence, /^1 of 2 monitors reached/);
});

test("totals are sums over monitors", () => {
  const { copied } = report();
  const two = report({ copied: [copied[0]!, copied[0]!] });
  assert.deepEqual(totals(two), {
    matched: 12,
    delivered: 18,
    deliveredBytes: 1800,
    flooded: 2,
    inFlight: 0,
    dropped: 4,
  });
});

test("traffic reads as on the command line", () => {
  assert.equal(traffic(report().policy), "src-ip=10.0.0.1 both directions");
  assert.equal(traffic({ name: "all", monitor: "3" }), "all traffic");
  assert.equal(traffic({ name: "f", monitor: "3", filter: "tcp port 80" }), 'filter="tcp port 80"');
});

test("paths are hops or names of switches", () => {
  const told = [{ monitor, hops: [{ switch: "0x1", out_port: 2 }, { switch: "0x2" }] }];
  assert.equal(paths(report({ path: told }))[0]?.hops.length, 2);
  assert.deepEqual(paths(report({ path: [{ monitor, switches: ["0x1"] }] }))[0]?.hops, [
    { switch: "0x1" },
  ]);
  assert.deepEqual(paths(report()), []);
});

test("rates are the growth of counters, also after they were set to zero", () => {
  const rates = new Rates();
  rates.feed("web", 1000, [100]);
  assert.equal(rates.of("web"), undefined);
  rates.feed("web", 3000, [300]);
  assert.deepEqual(rates.of("web"), [100]);
  rates.feed("web", 3100, [999]);
  assert.deepEqual(rates.of("web"), [100], "too early to say more");
  rates.feed("web", 5000, [50]);
  assert.deepEqual(rates.of("web"), [25]);
});

test("rates of policies that are long gone are forgotten, those in use are not", () => {
  const rates = new Rates();
  for (let n = 0; n <= 20_000; n++) {
    rates.feed("kept", n * 1000, [n]);
    for (const at of [0, 500]) rates.feed(`passing ${n}`, n * 1000 + at, [at]);
  }
  assert.deepEqual(rates.of("kept"), [1]);
  assert.deepEqual(rates.of("passing 20000"), [1000]);
  assert.equal(rates.of("passing 0"), undefined);
});

test("a policy is of whom it names, not of who added it", () => {
  const policy = { name: "web", monitor: "watch0" };
  assert.equal(owner(report({ policy: { ...policy, owner: "ann" }, owner: "unix:root" })), "ann");
  assert.equal(owner(report({ policy, owner: "unix:root" })), "unix:root");
  assert.equal(owner(report({ policy })), undefined);
});

test("a contract reads as a sentence, with its bound", () => {
  assert.match(contractText("lossless"), /^lossless: .*monitor's port/);
  assert.match(contractText("lossless:20"), /^lossless: .*at most 20 ms/);
  assert.equal(contractText("sample-on-pressure"), "sample-on-pressure");
  assert.match(pointText("ingress"), /ingress, before/);
  assert.match(pointText("egress"), /egress, after/);
});

test("this page becomes a monitor of a policy, and nothing else of it changes", () => {
  const one = { name: "web", monitor: "watch0", "dst-port": 80, "of-tomorrow": 7 };
  const watched = shownHere(one);
  assert.deepEqual(watched, { ...one, monitor: ["watch0", "controller"] });
  assert.deepEqual([isShownHere(one), isShownHere(watched)], [false, true]);
  assert.deepEqual(notShownHere(watched), one);
  assert.deepEqual(shownHere(watched), watched, "twice is once");
  const two = { name: "two", monitor: ["a", "b"] };
  assert.deepEqual(notShownHere(shownHere(two)), two);
  assert.equal(notShownHere({ name: "here", monitor: "controller" }), undefined);
});

test("the controller as a monitor has no numbers", () => {
  assert.equal(monitorText(monitor), "watch0 (0x1/3)");
  const here = { port: 0xfffffffd, name: "controller" };
  assert.equal(monitorText(here), "controller");
});
