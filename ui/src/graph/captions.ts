// Labels beside the objects of the picture, and the places where each may go.
import { bitRate, count, latency } from "../model/format";
import type { Tone } from "../model/policy";
import { type Point, along } from "./geometry";
import { linkWord } from "./load";
import { type Label, type Rank, around } from "./labels";
import { type Target, edgeKey } from "./target";
import { type Edge, type Node, type Outlet, type Spot, type Way, nodeCondition } from "./scene";

/** What captions need from the picture on the screen. */
export interface View {
  at(p: Point): Point;
  isSeen(at: Point): boolean;
  isChosen(target: Target): boolean;
  /** Width of text in pixels. */
  width(words: string, px: number, isBold: boolean): number;
  /** Half the size of a node. */
  half(node: Node): Point;
  /** The ends of a link. */
  ends(edge: Edge): [Point, Point];
  /** The switch of a host. */
  node(id: string): Node | undefined;
}

/** Style and rank of a caption. */
interface Look {
  colour: string;
  px: number;
  isBold?: boolean;
  rank: Rank;
}

/** The name of a switch, beside it if it is too small to contain it. */
export function ofNode(node: Node, view: View): Label[] {
  const isChosen = view.isChosen({ kind: "node", id: node.id });
  const rank = isChosen ? "chosen" : node.isConnected ? "switch" : "lost";
  const look: Look = { colour: node.isConnected ? "text" : "bad", px: 11.5, isBold: true, rank };
  return caption(nameOf(node), look, view.at(node), [view.half(node)], view);
}

/** A host's address, on the side away from its switch if there is room. */
export function ofSpot(spot: Spot, view: View): Label[] {
  const { host } = spot;
  const isChosen = view.isChosen({ kind: "host", mac: host.mac, switch: host.switch });
  const words = host.addresses[0] ?? `…${host.mac.slice(-8)}`;
  const look: Look = { colour: "text", px: 11, rank: isChosen ? "chosen" : "host" };
  // Half the size of the dot with its ring or monitor sign.
  const half = isChosen ? 12 : spot.isMonitor ? 10 : 6;
  const node = view.node(host.switch);
  return caption(
    words,
    look,
    view.at(spot),
    [{ x: half, y: half }],
    view,
    node !== undefined && spot.y < node.y,
  );
}

export function ofOutlet(outlet: Outlet, view: View): Label[] {
  const words = outlet.monitor.name || `port ${outlet.monitor.port}`;
  const look: Look = { colour: "text", px: 11, isBold: true, rank: "monitor" };
  return caption(words, look, view.at(outlet), [{ x: 10, y: 10 }], view, true);
}

/** One path for each TAP and monitor, so that its label appears once. */
export function oneEach(ways: Way[]): Way[] {
  const known = new Set<string>();
  return ways.filter(({ report, monitor }) => {
    const key = `${monitor.switch}/${monitor.port} ${report.policy.name}`;
    const isNew = !known.has(key);
    known.add(key);
    return isNew;
  });
}

/** A TAP's label, at the end of its line; labels at the same monitor are stacked. */
export function ofWay({ points, tone, report }: Way, words: string, view: View): Label[] {
  const isChosen = view.isChosen({ kind: "tap", name: report.policy.name });
  const end = points[points.length - 1]!;
  const look: Look = {
    colour: TAP_COLOURS[tone],
    px: 11.5,
    isBold: true,
    rank: isChosen ? "chosen" : "tap",
  };
  const isAbove = end.y <= (points[points.length - 2] ?? end).y;
  const halves = STACK.map((reach) => ({ x: 12 + reach / 2, y: 10 + reach }));
  return caption(words, look, view.at(end), halves, view, isAbove);
}

/** A link's load, at a free place along the link. */
export function ofEdge(edge: Edge, view: View): Label[] {
  const { link } = edge;
  const isChosen = view.isChosen({ kind: "link", key: edgeKey(edge) });
  const parts: string[] = [];
  if (!link.is_up) parts.push(linkWord(link));
  if (link.is_up && link.bits_per_second != null) parts.push(bitRate(link.bits_per_second));
  if (link.latency_ns != null && isChosen) parts.push(`≤ ${latency(link.latency_ns)}`);
  const [a, b] = view.ends(edge).map((p) => view.at(p)) as [Point, Point];
  if (parts.length === 0 || Math.hypot(b.x - a.x, b.y - a.y) < SHORT_LINK) return [];
  const [words, px] = [parts.join(", "), 11];
  const size = { x: view.width(words, px, false) + PAD, y: px * LINE };
  const places = ALONG.map((t) => along(a, b, t)).filter((at) => view.isSeen(at));
  const rank = isChosen ? "chosen" : "load";
  const colour = link.is_up ? "muted" : "bad";
  return [{ words, colour, px, isBold: false, rank, size, places }];
}

export function nameOf(node: Node): string {
  if (node.group) return `${count(node.switches)} switches`;
  const { tone, word } = nodeCondition(node);
  return tone === "good" ? node.id : `${node.id} ${word}`;
}

/** The second line of a card. */
export function hostsOf(node: Node): string {
  const none = node.member ? `${count(node.member.ports)} ports` : "no hosts";
  const hosts = node.hosts === 1 ? "1 host" : `${count(node.hosts)} hosts`;
  return (node.hosts === 0 ? none : hosts) + (node.monitors ? `, ${node.monitors} mon.` : "");
}

/** Text beside an object, as near as there is room. */
function caption(
  words: string,
  { colour, px, isBold = false, rank }: Look,
  at: Point,
  halves: Point[],
  view: View,
  isAbove = false,
): Label[] {
  if (!view.isSeen(at)) return [];
  const size = { x: view.width(words, px, isBold) + PAD, y: px * LINE };
  const places = halves.flatMap((half) => around(at, half, size, isAbove));
  return [{ words, colour, px, isBold, rank, size, places }];
}

export const TAP_COLOURS: Record<Tone, string> = {
  good: "tap",
  wait: "wait",
  bad: "bad",
  plain: "muted",
};
/** Places along a link. The middle is not enough: links of a fabric often cross there. */
const ALONG = [0.5, 0.4, 0.6, 0.32, 0.68, 0.24, 0.76];
/** Links shorter than this many pixels have no room for text. */
const SHORT_LINK = 90;
/** Distances from the end of a TAP's line, in pixels. */
const STACK = [4, 20, 36, 52, 68];
/** Width of the outline around text, in pixels. */
const PAD = 4;
const LINE = 1.3;
