// Parses and formats MAC and IP addresses.

/** The bytes of a MAC address, or `undefined`. */
export function parseMac(text: string): number[] | undefined {
  const parts = text.split(/[:-]/);
  if (parts.length !== 6 || !parts.every((part) => /^[0-9a-f]{1,2}$/i.test(part))) return undefined;
  return parts.map((part) => parseInt(part, 16));
}

/** The four bytes of an IPv4 address, or `undefined`. */
export function parseIpv4(text: string): number[] | undefined {
  const parts = text.split(".");
  const isByte = (part: string) => /^(0|[1-9][0-9]{0,2})$/.test(part) && Number(part) < 256;
  return parts.length === 4 && parts.every(isByte) ? parts.map(Number) : undefined;
}

/** The sixteen bytes of an IPv6 address, or `undefined`. */
export function parseIpv6(text: string): number[] | undefined {
  const halves = text.split("::");
  if (halves.length > 2 || !/^[0-9a-f:.]+$/i.test(text)) return undefined;
  const sides = halves.map((half) => groups(half));
  if (sides.some((side) => side === undefined)) return undefined;
  const [head = [], tail = []] = sides as number[][];
  if (halves.length === 1) return head.length === 16 ? head : undefined;
  const gap = 16 - head.length - tail.length;
  return gap < 2 ? undefined : [...head, ...new Array<number>(gap).fill(0), ...tail];
}

/** The bytes of colon-separated groups; the last group may be an IPv4 address. */
function groups(text: string): number[] | undefined {
  if (text === "") return [];
  const bytes: number[] = [];
  const parts = text.split(":");
  for (const [index, part] of parts.entries()) {
    const v4 = index === parts.length - 1 ? parseIpv4(part) : undefined;
    if (v4) bytes.push(...v4);
    else if (/^[0-9a-f]{1,4}$/i.test(part))
      bytes.push(parseInt(part, 16) >> 8, parseInt(part, 16) & 255);
    else return undefined;
  }
  return bytes;
}

/** An IPv4 or IPv6 address. */
export const parseIp = (text: string): number[] | undefined => parseIpv4(text) ?? parseIpv6(text);

/** An address and its prefix length in bits. */
export interface Prefix {
  bytes: number[];
  bits: number;
}

/** `10.0.0.0/24`, `2001:db8::/32`, or one address. */
export function parsePrefix(text: string): Prefix | undefined {
  const [address = "", bits, ...rest] = text.split("/");
  const bytes = parseIp(address);
  if (!bytes || rest.length > 0) return undefined;
  if (bits === undefined) return { bytes, bits: bytes.length * 8 };
  const isNumber = /^(0|[1-9][0-9]{0,2})$/.test(bits) && Number(bits) <= bytes.length * 8;
  return isNumber ? { bytes, bits: Number(bits) } : undefined;
}

/** Whether all host bits are zero. */
export function isWholePrefix({ bytes, bits }: Prefix): boolean {
  return bytes.every((byte, index) => (byte & ~maskByte(bits, index) & 255) === 0);
}

/** Whether the address `bytes` is in the prefix. */
export function prefixContains(prefix: Prefix, bytes: number[]): boolean {
  if (bytes.length !== prefix.bytes.length) return false;
  return bytes.every((byte, index) => {
    const mask = maskByte(prefix.bits, index);
    return (byte & mask) === ((prefix.bytes[index] ?? 0) & mask);
  });
}

function maskByte(bits: number, index: number): number {
  const ones = Math.min(8, Math.max(0, bits - index * 8));
  return (0xff00 >> ones) & 255;
}

export const macText = (bytes: ArrayLike<number>): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(":");

export function ipText(bytes: ArrayLike<number>): string {
  return bytes.length === 4 ? Array.from(bytes).join(".") : ipv6Text(bytes);
}

/** RFC 5952: the longest run of two or more zero groups becomes `::`. */
function ipv6Text(bytes: ArrayLike<number>): string {
  const words = Array.from({ length: 8 }, (_, i) => (bytes[2 * i]! << 8) | bytes[2 * i + 1]!);
  let best = { at: -1, len: 1 };
  for (let at = 0; at < 8; at++) {
    let len = 0;
    while (at + len < 8 && words[at + len] === 0) len++;
    if (len > best.len) best = { at, len };
  }
  const hex = (part: number[]) => part.map((word) => word.toString(16)).join(":");
  if (best.at < 0) return hex(words);
  return `${hex(words.slice(0, best.at))}::${hex(words.slice(best.at + best.len))}`;
}
