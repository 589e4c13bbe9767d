// Decodes the headers of a packet, for the packet view and for the filter box.
//
// Decoding stops where the packet is truncated; what was decoded until then is shown.
import { ipText, macText } from "./address";

/** One header, as a line and as named fields. */
export interface Layer {
  name: string;
  line: string;
  fields: [string, string][];
}

/** Values that filters test. */
export interface Decoded {
  layers: Layer[];
  etherSrc?: number[];
  etherDst?: number[];
  etherType?: number;
  vlans: number[];
  src?: number[];
  dst?: number[];
  proto?: number;
  srcPort?: number;
  dstPort?: number;
  tcpFlags?: number;
  payload: number;
}

/** The bytes of hexadecimal text, up to the first invalid digit. */
export function fromHex(text: string): Uint8Array {
  const digits = /^(?:[0-9a-f]{2})*/i.exec(text)?.[0] ?? "";
  return Uint8Array.from({ length: digits.length / 2 }, (_, i) =>
    parseInt(digits.slice(2 * i, 2 * i + 2), 16),
  );
}

/** Decodes an Ethernet frame. */
export function decode(bytes: Uint8Array): Decoded {
  const reader = new Reader(bytes);
  const out: Decoded = { layers: [], vlans: [], payload: 0 };
  try {
    ethernet(reader, out);
  } catch (error) {
    if (!(error instanceof TooShort)) throw error;
    out.layers.push({ name: "…", line: "the captured bytes end here", fields: [] });
  }
  out.payload = reader.left;
  return out;
}

class TooShort extends Error {}

/** A cursor over the bytes. */
class Reader {
  at = 0;
  constructor(readonly bytes: Uint8Array) {}

  get left(): number {
    return this.bytes.length - this.at;
  }

  take(len: number): Uint8Array {
    if (this.left < len) throw new TooShort();
    this.at += len;
    return this.bytes.subarray(this.at - len, this.at);
  }

  list = (len: number): number[] => Array.from(this.take(len));
  u8 = (): number => this.take(1)[0]!;
  u16 = (): number => (this.u8() << 8) | this.u8();
  u32 = (): number => this.u16() * 65536 + this.u16();
}

function ethernet(r: Reader, out: Decoded): void {
  const [dst, src] = [r.list(6), r.list(6)];
  let type = r.u16();
  out.etherDst = dst;
  out.etherSrc = src;
  out.layers.push({
    name: "Ethernet",
    line: `${macText(src)} > ${macText(dst)}, ${etherTypeName(type)}`,
    fields: [
      ["source", macText(src)],
      ["destination", macText(dst)],
      ["type", hex(type, 4)],
    ],
  });
  while (TAGS.has(type) && out.vlans.length < MOST_TAGS) type = vlanTag(type, r, out);
  out.etherType = type;
  NETWORK.get(type)?.(r, out);
}

function vlanTag(tpid: number, r: Reader, out: Decoded): number {
  const tci = r.u16();
  const type = r.u16();
  const [id, priority] = [tci & 0xfff, tci >> 13];
  out.vlans.push(id);
  out.layers.push({
    name: tpid === 0x88a8 ? "802.1ad" : "802.1Q",
    line: `VLAN ${id}, priority ${priority}, ${etherTypeName(type)}`,
    fields: [
      ["VLAN", `${id}`],
      ["priority", `${priority}`],
      ["drop eligible", `${(tci >> 12) & 1}`],
    ],
  });
  return type;
}

function arp(r: Reader, out: Decoded): void {
  r.take(6);
  const operation = r.u16();
  const [sha, spa, tha, tpa] = [r.list(6), r.list(4), r.list(6), r.list(4)];
  out.src = spa;
  out.dst = tpa;
  const line =
    operation === 1
      ? `who has ${ipText(tpa)}? tell ${ipText(spa)}`
      : `${ipText(spa)} is at ${macText(sha)}`;
  out.layers.push({
    name: "ARP",
    line,
    fields: [
      ["operation", operation === 1 ? "request" : operation === 2 ? "reply" : `${operation}`],
      ["sender", `${macText(sha)} ${ipText(spa)}`],
      ["target", `${macText(tha)} ${ipText(tpa)}`],
    ],
  });
}

function ipv4(r: Reader, out: Decoded): void {
  const start = r.at;
  const first = r.u8();
  const tos = r.u8();
  const total = r.u16();
  const id = r.u16();
  const fragment = r.u16();
  const [ttl, proto, sum] = [r.u8(), r.u8(), r.u16()];
  const [src, dst] = [r.list(4), r.list(4)];
  r.take(Math.max(0, (first & 15) * 4 - 20));
  Object.assign(out, { src, dst, proto });
  const more = fragment & 0x1fff ? `, fragment at ${(fragment & 0x1fff) * 8}` : "";
  out.layers.push({
    name: "IPv4",
    line: `${ipText(src)} > ${ipText(dst)}, ${protoName(proto)}, ttl ${ttl}, ${total} bytes${more}`,
    fields: [
      ["source", ipText(src)],
      ["destination", ipText(dst)],
      ["protocol", `${proto}`],
      ["ttl", `${ttl}`],
      ["DSCP, ECN", `${tos >> 2}, ${tos & 3}`],
      ["length", `${total}`],
      ["id", hex(id, 4)],
      ["checksum", hex(sum, 4)],
    ],
  });
  if (!(fragment & 0x1fff)) transport(proto, r, out, total - (r.at - start));
}

function ipv6(r: Reader, out: Decoded): void {
  const word = r.u32();
  const len = r.u16();
  let proto = r.u8();
  const hops = r.u8();
  const [src, dst] = [r.list(16), r.list(16)];
  let left = len;
  for (let n = 0; EXTENSIONS.has(proto) && n < MOST_EXTENSIONS; n++) {
    const next = r.u8();
    const extra = proto === 44 ? 7 : r.u8() * 8 + 6;
    if (proto === 44 && ((r.bytes[r.at + 1]! << 8) | r.bytes[r.at + 2]!) >> 3) out.payload = -1;
    r.take(extra);
    left -= extra + 2;
    proto = next;
  }
  Object.assign(out, { src, dst, proto });
  out.layers.push({
    name: "IPv6",
    line: `${ipText(src)} > ${ipText(dst)}, ${protoName(proto)}, hop limit ${hops}, ${len} bytes`,
    fields: [
      ["source", ipText(src)],
      ["destination", ipText(dst)],
      ["next header", `${proto}`],
      ["hop limit", `${hops}`],
      ["traffic class", `${(word >>> 20) & 255}`],
      ["flow label", hex(word % 0x100000, 5)],
      ["payload", `${len}`],
    ],
  });
  if (out.payload === 0) transport(proto, r, out, left);
}

function transport(proto: number, r: Reader, out: Decoded, len: number): void {
  if (proto === 6) tcp(r, out, len);
  else if (proto === 17) udp(r, out);
  else if (proto === 1 || proto === 58) icmp(proto, r, out);
  else if (proto === 132) ports("SCTP", r, out);
}

function tcp(r: Reader, out: Decoded, len: number): void {
  const [src, dst] = [r.u16(), r.u16()];
  Object.assign(out, { srcPort: src, dstPort: dst });
  const [seq, ack] = [r.u32(), r.u32()];
  const [offset, flags, window] = [r.u8() >> 4, r.u8(), r.u16()];
  out.tcpFlags = flags;
  const sum = r.u16();
  r.take(2 + Math.max(0, offset * 4 - 20));
  const names = TCP_FLAGS.filter((_, bit) => flags & (1 << bit)).join(" ") || "none";
  const data = Math.max(0, len - offset * 4);
  out.layers.push({
    name: "TCP",
    line: `${src} > ${dst}, [${names}], seq ${seq}, ack ${ack}, ${data} bytes`,
    fields: [
      ["source port", `${src}`],
      ["destination port", `${dst}`],
      ["flags", names],
      ["sequence", `${seq}`],
      ["acknowledgment", `${ack}`],
      ["window", `${window}`],
      ["checksum", hex(sum, 4)],
    ],
  });
}

function udp(r: Reader, out: Decoded): void {
  const [src, dst] = [r.u16(), r.u16()];
  Object.assign(out, { srcPort: src, dstPort: dst });
  const [len, sum] = [r.u16(), r.u16()];
  out.layers.push({
    name: "UDP",
    line: `${src} > ${dst}, ${Math.max(0, len - 8)} bytes`,
    fields: [
      ["source port", `${src}`],
      ["destination port", `${dst}`],
      ["length", `${len}`],
      ["checksum", hex(sum, 4)],
    ],
  });
}

function icmp(proto: number, r: Reader, out: Decoded): void {
  const [type, code] = [r.u8(), r.u8()];
  r.u16();
  const name = proto === 1 ? "ICMP" : "ICMPv6";
  const meaning =
    (proto === 1 ? ICMP_TYPES : ICMPV6_TYPES).get(type) ?? `type ${type} code ${code}`;
  out.layers.push({
    name,
    line: meaning,
    fields: [
      ["type", `${type}`],
      ["code", `${code}`],
    ],
  });
}

function ports(name: string, r: Reader, out: Decoded): void {
  const [src, dst] = [r.u16(), r.u16()];
  Object.assign(out, { srcPort: src, dstPort: dst });
  out.layers.push({
    name,
    line: `${src} > ${dst}`,
    fields: [
      ["source port", `${src}`],
      ["destination port", `${dst}`],
    ],
  });
}

const hex = (n: number, digits: number): string => `0x${n.toString(16).padStart(digits, "0")}`;

const etherTypeName = (type: number): string => ETHER_TYPES.get(type) ?? hex(type, 4);
const protoName = (proto: number): string => PROTOCOLS.get(proto) ?? `protocol ${proto}`;

const TAGS = new Set([0x8100, 0x88a8, 0x9100]);
const MOST_TAGS = 16;
/** IPv6 extension headers: hop-by-hop, routing, fragment, destination options. */
const EXTENSIONS = new Set([0, 43, 44, 60]);
const MOST_EXTENSIONS = 8;
const NETWORK = new Map<number, (r: Reader, out: Decoded) => void>([
  [0x0800, ipv4],
  [0x86dd, ipv6],
  [0x0806, arp],
]);
const ETHER_TYPES = new Map([
  [0x0800, "IPv4"],
  [0x86dd, "IPv6"],
  [0x0806, "ARP"],
  [0x8100, "802.1Q"],
  [0x88a8, "802.1ad"],
  [0x88cc, "LLDP"],
  [0x8847, "MPLS"],
]);
const PROTOCOLS = new Map([
  [1, "ICMP"],
  [2, "IGMP"],
  [6, "TCP"],
  [17, "UDP"],
  [47, "GRE"],
  [50, "ESP"],
  [58, "ICMPv6"],
  [89, "OSPF"],
  [132, "SCTP"],
]);
const TCP_FLAGS = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
const ICMP_TYPES = new Map([
  [0, "echo reply"],
  [3, "destination unreachable"],
  [5, "redirect"],
  [8, "echo request"],
  [11, "time exceeded"],
]);
const ICMPV6_TYPES = new Map([
  [1, "destination unreachable"],
  [2, "packet too big"],
  [3, "time exceeded"],
  [128, "echo request"],
  [129, "echo reply"],
  [133, "router solicitation"],
  [134, "router advertisement"],
  [135, "neighbor solicitation"],
  [136, "neighbor advertisement"],
  [143, "multicast listener report"],
]);

/** A hex dump, sixteen bytes per line. */
export function hexDump(bytes: Uint8Array): string[] {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = Array.from(bytes.subarray(at, at + 16));
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "."));
    lines.push(`${at.toString(16).padStart(4, "0")}  ${digits.padEnd(47)}  ${text.join("")}`);
  }
  return lines;
}
