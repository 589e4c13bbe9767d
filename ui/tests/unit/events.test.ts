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
