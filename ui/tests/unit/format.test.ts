import assert from "node:assert/strict";
import { test } from "node:test";
import { bitRate, count, duration, latency, plural, short, size } from "../../src/model/format";

test("numbers have three digits and a prefix", () => {
  const cases: [number, string][] = [
    [0, "0"],
    [7, "7"],
    [999, "999"],
    [1000, "1.00\u202fk"],
    [12_345, "12.3\u202fk"],
    [999_499, "999\u202fk"],
    [999_501, "1.00\u202fM"],
    [1.5e9, "1.50\u202fG"],
  ];
  for (const [n, text] of cases) assert.equal(short(n), text);
});

test("units stand behind the prefix", () => {
  assert.equal(bitRate(14_840_000_000), "14.8\u202fGb/s");
  assert.equal(bitRate(0), "0\u202fb/s");
  assert.equal(size(1500), "1.50\u202fkB");
  assert.equal(latency(850), "850\u202fns");
  assert.equal(latency(123_456), "123\u202fµs");
  assert.equal(latency(4_560_000), "4.56\u202fms");
});

test("durations have their two largest units", () => {
  const cases: [number, string][] = [
    [0, "0 s"],
    [-5, "0 s"],
    [8_900, "8 s"],
    [310_000, "5 min 10 s"],
    [3_600_000, "1 h"],
    [2 * 86_400_000 + 3 * 3_600_000 + 5000, "2 d 3 h"],
  ];
  for (const [ms, text] of cases) assert.equal(duration(ms), text);
});

test("counts and plurals", () => {
  assert.equal(count(146_760), "146,760");
  assert.equal(plural(1, "switch", "switches"), "1 switch");
  assert.equal(plural(2000, "switch", "switches"), "2,000 switches");
});
