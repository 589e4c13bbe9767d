import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, fromHex, hexDump } from "../../src/model/decode";
import { FilterError, compile, subject } from "../../src/model/filter";
import { ARP, PING6, TCP_SYN, UDP_IN_VLAN, packet } from "./packets";

const names = (hex: string) => decode(fromHex(hex)).layers.map((layer) => layer.name);

test("headers are read as they are", () => {
  assert.deepEqual(names(TCP_SYN), ["Ethernet", "IPv4", "TCP"]);
  assert.deepEqual(names(UDP_IN_VLAN), ["Ethernet", "802.1Q", "IPv4", "UDP"]);
  assert.deepEqual(names(ARP), ["Ethernet", "ARP"]);
  assert.deepEqual(names(PING6), ["Ethernet", "IPv6", "ICMPv6"]);
  const tcp = decode(fromHex(TCP_SYN)).layers[2]!;
  assert.match(tcp.line, /40000 > 80, \[SYN\], seq 1, ack 0, 0 bytes/);
  assert.match(decode(fromHex(ARP)).layers[1]!.line, /who has 10.0.0.2\? tell 10.0.0.1/);
});

test("no end of bytes and no odd byte is a fault of the page", () => {
  for (const whole of [TCP_SYN, UDP_IN_VLAN, ARP, PING6]) {
    for (let len = 0; len < whole.length; len++) decode(fromHex(whole.slice(0, len)));
  }
  let state = 1;
  for (let round = 0; round < 2000; round++) {
    const bytes = Uint8Array.from(
      { length: 80 },
      () => (state = (state * 48271) % 2147483647) & 255,
    );
    bytes.set(
      [
        [8, 0],
        [0x86, 0xdd],
        [0x81, 0],
        [8, 6],
      ][round % 4]!,
      12,
    );
    decode(bytes);
  }
});

test("a hex dump has sixteen bytes a line", () => {
  const lines = hexDump(fromHex(TCP_SYN));
  assert.equal(lines.length, Math.ceil(TCP_SYN.length / 32));
  assert.match(lines[0]!, /^0000 {2}02 00 00 00 00 02 .* {2}\.{14}E\.$/);
});

const all = { tcp: TCP_SYN, udp: UDP_IN_VLAN, arp: ARP, ping6: PING6 };
function passes(expression: string): string[] {
  const predicate = compile(expression);
  return Object.entries(all)
    .filter(([, hex]) => predicate(subject(packet(hex))))
    .map(([name]) => name);
}

test("filters mean what tcpdump's mean", () => {
  const cases: [string, string[]][] = [
    ["", ["tcp", "udp", "arp", "ping6"]],
    ["tcp", ["tcp"]],
    ["ip", ["tcp", "udp"]],
    ["ip6", ["ping6"]],
    ["icmp6", ["ping6"]],
    ["port 80", ["tcp"]],
    ["tcp dst port 80", ["tcp"]],
    ["src port 80", []],
    ["udp port 53", ["udp"]],
    ["portrange 50-60", ["udp"]],
    ["host 10.0.0.2", ["tcp", "arp"]],
    ["src host 10.0.0.2", []],
    ["10.0.0.9", ["udp"]],
    ["net 10.0.0.0/29", ["tcp", "udp", "arp"]],
    ["src and dst net 10.0.0.0/30", ["tcp", "arp"]],
    ["src or dst host 2001:db8::2", ["ping6"]],
    ["vlan", ["udp"]],
    ["vlan 100", ["udp"]],
    ["vlan 101", []],
    ["ether src 02:00:00:00:00:01", ["tcp", "udp", "arp", "ping6"]],
    ["ether dst ff:ff:ff:ff:ff:ff", ["arp"]],
    ["not arp and not tcp", ["udp", "ping6"]],
    ["!(arp || tcp)", ["udp", "ping6"]],
    // `and` and `or` are of equal precedence and left-associative, as in policies.
    ["tcp or udp and vlan", ["udp"]],
    ["tcp or (udp and vlan)", ["tcp", "udp"]],
    ["udp and vlan or tcp", ["tcp", "udp"]],
    ["tcp or udp vlan", ["udp"]],
    ["(tcp or udp) and vlan", ["udp"]],
    ["tcp port 80 host 10.0.0.1", ["tcp"]],
    ["less 42", ["arp"]],
    ["greater 60", ["tcp", "ping6"]],
    ["proto 17", ["udp"]],
    ['"echo request"', ["ping6"]],
    ['"WHO HAS"', ["arp"]],
  ];
  for (const [expression, expected] of cases)
    assert.deepEqual(passes(expression), expected, expression);
});

test("errors say what and where", () => {
  const cases: [string, number, RegExp][] = [
    ["tcp prot 80", 4, /'prot' is neither an address/],
    ["port", 4, /missing at the end/],
    ["port 70000", 5, /not a port/],
    ["(tcp", 4, /'\)' is missing/],
    ["tcp)", 3, /not expected/],
    ["tcp or", 6, /missing at the end/],
    ["portrange 9-1", 10, /8000-8010/],
    ["host 10.0.0.0/8", 5, /needs 'net'/],
    ["ether host x", 11, /is not a MAC address/],
    ["tcp & udp", 4, /'&' is not understood/],
  ];
  for (const [expression, at, message] of cases) {
    assert.throws(
      () => compile(expression),
      (error) => {
        assert.ok(error instanceof FilterError);
        assert.match(error.message, message);
        assert.equal(error.at, at, expression);
        return true;
      },
    );
  }
});
