// The filter box of the packet list: a common subset of pcap-filter(7), and "text".
//
//   all   := not { ("or" | "||" | ["and" | "&&"]) not }     of equal precedence, left-associative
//   not   := ("not" | "!") not | "(" all ")" | primitive
//
// It selects among packets already received; the policy determines which packets are copied.
import { parseIp, parseMac, parsePrefix, prefixContains } from "./address";
import { type Decoded, decode, fromHex } from "./decode";
import type { Packet } from "../api/types";

/** What a filter is applied to. */
export interface Subject {
  decoded: Decoded;
  len: number;
  text: string;
}

export type Predicate = (subject: Subject) => boolean;

/** A syntax error in an expression, with the offset of the character. */
export class FilterError extends Error {
  constructor(
    message: string,
    readonly at: number,
  ) {
    super(message);
  }
}

export function subject(packet: Packet): Subject {
  const decoded = decode(fromHex(packet.bytes_hex));
  const lines = decoded.layers.map((layer) => `${layer.name} ${layer.line}`);
  const text = [packet.summary, packet.switch, ...lines].join(" ").toLowerCase();
  return { decoded, len: packet.len, text };
}

/** Compiles an expression; an empty one accepts every packet. */
export function compile(expression: string): Predicate {
  const parser = new Parser(tokens(expression), expression.length);
  return parser.isAtEnd ? () => true : parser.whole();
}

interface Token {
  text: string;
  at: number;
  isQuoted: boolean;
}

function tokens(expression: string): Token[] {
  const found: Token[] = [];
  const pattern = /\s*(?:"([^"]*)"|(&&|\|\||[()!])|([^\s()!"&|]+)|(.))/gy;
  for (let match = pattern.exec(expression); match; match = pattern.exec(expression)) {
    const [whole, quoted, sign, word, odd] = match;
    const at = match.index + whole.search(/\S/);
    if (odd !== undefined && odd.trim())
      throw new FilterError(`'${odd}' is not understood here`, at);
    const text = quoted ?? sign ?? word?.toLowerCase();
    if (text !== undefined) found.push({ text, at, isQuoted: quoted !== undefined });
  }
  return found;
}

type Side = "src" | "dst" | "either" | "both";

class Parser {
  private index = 0;
  constructor(
    private readonly tokens: Token[],
    private readonly end: number,
  ) {}

  get isAtEnd(): boolean {
    return this.index >= this.tokens.length;
  }

  whole(): Predicate {
    const whole = this.all();
    const rest = this.tokens[this.index];
    if (rest) throw new FilterError(`'${rest.text}' is not expected here`, rest.at);
    return whole;
  }

  private all(): Predicate {
    let left = this.not();
    while (!this.isAtEnd && !this.sees(")")) {
      const isOr = this.takeAny("or", "||") !== undefined;
      if (!isOr) this.takeAny("and", "&&");
      const [a, b] = [left, this.not()];
      left = isOr ? (s) => a(s) || b(s) : (s) => a(s) && b(s);
    }
    return left;
  }

  private not(): Predicate {
    if (this.takeAny("not", "!")) {
      const inner = this.not();
      return (s) => !inner(s);
    }
    if (!this.takeAny("(")) return this.primitive();
    const inner = this.all();
    if (!this.takeAny(")")) throw this.error("a ')' is missing");
    return inner;
  }

  private primitive(): Predicate {
    const token = this.tokens[this.index];
    if (!token) throw this.error("something is missing at the end");
    if (token.isQuoted) return this.words();
    if (PROTOCOLS.has(token.text)) return this.protocol();
    if (token.text === "vlan") return this.vlan();
    if (token.text === "ether") return this.ether();
    if (token.text === "less" || token.text === "greater") return this.length();
    if (token.text === "proto") return this.protocolNumber();
    return this.addressOrPort(this.side());
  }

  private words(): Predicate {
    const { text } = this.next();
    const wanted = text.toLowerCase();
    return (s) => s.text.includes(wanted);
  }

  private protocol(): Predicate {
    const is = PROTOCOLS.get(this.next().text)!;
    if (!this.sees("src", "dst", "host", "net", "port", "portrange")) return is;
    const more = this.addressOrPort(this.side());
    return (s) => is(s) && more(s);
  }

  private vlan(): Predicate {
    this.next();
    const token = this.tokens[this.index];
    if (!token || !/^\d+$/.test(token.text)) return (s) => s.decoded.vlans.length > 0;
    const id = this.number("a VLAN id", 4094);
    return (s) => s.decoded.vlans.includes(id);
  }

  private ether(): Predicate {
    this.next();
    const side = this.side();
    this.takeAny("host");
    const token = this.next();
    const mac = parseMac(token.text);
    if (!mac) throw new FilterError(`'${token.text}' is not a MAC address`, token.at);
    const is = (bytes?: number[]) => bytes !== undefined && mac.every((b, i) => b === bytes[i]);
    return ({ decoded }) => onSide(side, is(decoded.etherSrc), is(decoded.etherDst));
  }

  private length(): Predicate {
    const isLess = this.next().text === "less";
    const limit = this.number("a length in bytes", 1e9);
    return (s) => (isLess ? s.len <= limit : s.len >= limit);
  }

  private protocolNumber(): Predicate {
    this.next();
    const proto = this.number("a protocol number", 255);
    return (s) => s.decoded.proto === proto;
  }

  private side(): Side {
    const first = this.takeAny("src", "dst");
    if (!first) return "either";
    const joint = this.sees("or", "and") ? this.tokens[this.index + 1]?.text : undefined;
    if (joint !== "src" && joint !== "dst") return first as Side;
    const isAnd = this.next().text === "and";
    this.next();
    return isAnd ? "both" : "either";
  }

  private addressOrPort(side: Side): Predicate {
    if (this.takeAny("port")) {
      const port = this.number("a port", 65535);
      return byPort(side, port, port);
    }
    if (this.takeAny("portrange")) return this.portRange(side);
    const isNet = this.takeAny("net") !== undefined;
    if (!isNet) this.takeAny("host");
    const token = this.next();
    const prefix = parsePrefix(token.text);
    if (!prefix) throw new FilterError(this.unknown(token), token.at);
    if (!isNet && !parseIp(token.text)) throw new FilterError("a prefix needs 'net'", token.at);
    const is = (bytes?: number[]) => bytes !== undefined && prefixContains(prefix, bytes);
    return ({ decoded }) => onSide(side, is(decoded.src), is(decoded.dst));
  }

  private unknown(token: Token): string {
    return `'${token.text}' is neither an address nor a filter keyword; for text, write "${token.text}"`;
  }

  private portRange(side: Side): Predicate {
    const token = this.next();
    const [, low, high] = /^(\d+)-(\d+)$/.exec(token.text) ?? [];
    if (!low || Number(high) > 65535 || Number(low) > Number(high)) {
      throw new FilterError("a range of ports looks like 8000-8010", token.at);
    }
    return byPort(side, Number(low), Number(high));
  }

  private number(what: string, most: number): number {
    const token = this.next(what);
    const value = /^\d+$/.test(token.text) ? Number(token.text) : NaN;
    if (!(value <= most)) throw new FilterError(`'${token.text}' is not ${what}`, token.at);
    return value;
  }

  private sees(...words: string[]): boolean {
    const token = this.tokens[this.index];
    return token !== undefined && !token.isQuoted && words.includes(token.text);
  }

  private takeAny(...words: string[]): string | undefined {
    return this.sees(...words) ? this.next().text : undefined;
  }

  private next(what = "something"): Token {
    const token = this.tokens[this.index++];
    if (!token) throw this.error(`${what} is missing at the end`);
    return token;
  }

  private error(message: string): FilterError {
    return new FilterError(message, this.tokens[this.index]?.at ?? this.end);
  }
}

function byPort(side: Side, low: number, high: number): Predicate {
  const is = (port?: number) => port !== undefined && low <= port && port <= high;
  return ({ decoded }) => onSide(side, is(decoded.srcPort), is(decoded.dstPort));
}

function onSide(side: Side, src: boolean, dst: boolean): boolean {
  if (side === "src") return src;
  if (side === "dst") return dst;
  return side === "both" ? src && dst : src || dst;
}

const byProto =
  (proto: number): Predicate =>
  (s) =>
    s.decoded.proto === proto;
const byType =
  (type: number): Predicate =>
  (s) =>
    s.decoded.etherType === type;
const PROTOCOLS = new Map<string, Predicate>([
  ["tcp", byProto(6)],
  ["udp", byProto(17)],
  ["icmp", byProto(1)],
  ["icmp6", byProto(58)],
  ["sctp", byProto(132)],
  ["ip", byType(0x0800)],
  ["ip6", byType(0x86dd)],
  ["arp", byType(0x0806)],
]);
