import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, asError } from "../../src/api/client";

test("what another moment may answer is asked again", () => {
  const error = (status: number) => new ApiError(status, "", "");
  // A follower may lead by then, and the leader may be a different one.
  for (const status of [0, 421, 500, 503]) assert.ok(error(status).mayHeal, `${status}`);
  for (const status of [400, 401, 403, 404, 409, 422]) assert.ok(!error(status).mayHeal);
});

test("an error says where the leader is, and links nowhere else", () => {
  const refusal = (leader: unknown) =>
    asError(421, JSON.stringify({ error: { code: "not-leader", message: "ask it", leader } }));
  const error = refusal("http://10.0.1.2:8653");
  assert.deepEqual(
    [error.status, error.code, error.message, error.leader],
    [421, "not-leader", "ask it", "http://10.0.1.2:8653"],
  );
  for (const other of [null, 7, "javascript:alert(1)", "//x"])
    assert.equal(refusal(other).leader, null);
});
