import assert from "node:assert/strict";
import { test } from "node:test";
import { words } from "../../src/views/events";

test("an event of the audit log says where copies go, and what came of it", () => {
  const policy = { name: "q3", monitor: ["watch0", "0x1/4"] };
  const record = { who: "ann", what: "policy.add", policy, result: "refused: there is one" };
  assert.equal(
    words({ id: 1, event: "audit", record }),
    "ann: policy.add q3 to watch0, 0x1/4 (refused: there is one)",
  );
  const deleted = { ...record, what: "policy.delete", policy: "q3", result: "accepted" };
  assert.equal(
    words({ id: 2, event: "audit", record: deleted }),
    "ann: policy.delete q3 (accepted)",
  );
});

test("a policy that was not all proved says so when it comes into force", () => {
  const state = { is: "active" };
  const unproved = "0x6 is away";
  assert.equal(
    words({ id: 1, event: "policy", name: "web", state, unproved }),
    "web is active; not all of it could be proved: 0x6 is away",
  );
});
