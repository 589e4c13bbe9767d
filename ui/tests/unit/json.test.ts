import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "../../src/api/json";

test("what is not seen is written out, and all else is as it was", () => {
  const seen = { "Größe 名前": ["🙂 עברית \u202f\u00a0 \\u{41}", 1.5, null, true, 'a"\\'] };
  assert.deepEqual(parse(JSON.stringify(seen)), seen);
  const unseen = { owner: 'bob\u202e"\u2066', "k\u200by": ["\ufeff\u{e0041}\u2028"] };
  assert.deepEqual(parse(JSON.stringify(unseen)), {
    owner: 'bob\\u{202e}"\\u{2066}',
    "k\\u{200b}y": ["\\u{feff}\\u{e0041}\\u{2028}"],
  });
  assert.throws(() => parse("\u202e{}"), SyntaxError);
});
