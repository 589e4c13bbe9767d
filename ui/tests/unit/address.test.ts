import assert from "node:assert/strict";
import { isIP } from "node:net";
import { test } from "node:test";
import {
  ipText,
  isWholePrefix,
  parseIp,
  parseIpv6,
  parseMac,
  parsePrefix,
  prefixContains,
} from "../../src/model/address";

test("addresses are those that Node knows as well", () => {
  const texts = [
    "10.0.0.1",
    "10.0.0",
    "10.0.0.256",
    "010.0.0.1",
    "::",
    "::1",
    "2001:db8::9",
    "1::2::3",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:8:9",
    "::ffff:10.0.0.1",
    "1:2:3:4:5:6:7::",
    "g::",
    "",
    "1:2:3:4:5:6:10.0.0.1",
    "fe80::1:2:3:4:5:6:7",
  ];
  for (const text of texts) assert.equal(parseIp(text) !== undefined, isIP(text) !== 0, text);
});

test("IPv6 is written as RFC 5952 wants it", () => {
  const cases: [string, string][] = [
    ["2001:DB8:0:0:0:0:0:9", "2001:db8::9"],
    ["0:0:0:0:0:0:0:0", "::"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3"],
    ["1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7"],
  ];
  for (const [text, canonical] of cases) assert.equal(ipText(parseIpv6(text)!), canonical);
});

test("prefixes", () => {
  const net = parsePrefix("10.0.4.0/22")!;
  assert.ok(isWholePrefix(net));
  assert.ok(prefixContains(net, [10, 0, 7, 255]));
  assert.ok(!prefixContains(net, [10, 0, 8, 0]));
  assert.ok(!isWholePrefix(parsePrefix("10.0.0.1/24")!));
  assert.ok(prefixContains(parsePrefix("::/0")!, parseIpv6("2001:db8::1")!));
  for (const wrong of [
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/1/2",
    "::/129",
    "x/8",
    "10.0.0.0/ 8",
  ]) {
    assert.equal(parsePrefix(wrong), undefined, wrong);
  }
});

test("MAC addresses", () => {
  assert.deepEqual(parseMac("02:00:00:00:00:0a"), [2, 0, 0, 0, 0, 10]);
  assert.equal(parseMac("02:00:00:00:00"), undefined);
  assert.equal(parseMac("02:00:00:00:00:zz"), undefined);
});
