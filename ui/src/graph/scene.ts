// Contents of the picture: nodes, links, hosts and TAPs with their positions.
import type {
  CopyPath,
  Group,
  HostReport,
  Link,
  MonitorPort,
  PolicyReport,
  Topology,
  TopologySwitch,
} from "../api/types";
import { paths, monitorPorts, tone, type Tone, type Verdict } from "../model/policy";
import { condition } from "../model/switch";
import { parsePrefix, parseIp, prefixContains } from "../model/address";
import { type Point, beside, lane } from "./geometry";
import type { Graph, Positions } from "./layout";

/** A switch, or a group of switches. */
export interface Node extends Point {
  id: string;
  hosts: number;
  monitors: number;
  isConnected: boolean;
  isSilent: boolean;
  switches: number;
  group?: Group;
  member?: TopologySwitch;
}

/** A link by the indexes of its nodes; `slot` of `slots` numbers parallel links. */
export interface Edge {
  a: number;
  b: number;
  slot: number;
  slots: number;
  link: Link;
}

/** A host beside its switch. */
export interface Spot extends Point {
  host: HostReport;
  isMonitor: boolean;
}

/** Where copies leave the fabric. */
export interface Outlet extends Point {
  monitor: MonitorPort;
  node: number;
}

/** A path of a policy's copies: one for each monitor and switch that makes copies for it. */
export interface Way {
  report: PolicyReport;
  monitor: MonitorPort;
  tone: Tone;
  points: Point[];
}

/** Nodes and links of a topology, not placed yet. */
export interface Frame {
  nodes: Node[];
  edges: Edge[];
  index: Map<string, number>;
}

export function frame(topology: Topology): Frame {
  const nodes = [...topology.switches.map(asNode), ...(topology.groups ?? []).map(asGroup)];
  const index = new Map<string, number>();
  nodes.forEach((node, i) => {
    index.set(node.id, i);
    node.group?.members.forEach((member) => index.set(member, i));
  });
  return { nodes, edges: edges(topology.links ?? [], index), index };
}

function asNode(member: TopologySwitch): Node {
  const { switch: id, hosts, monitors, is_connected: isConnected, is_silent } = member;
  const isSilent = is_silent === true;
  return { id, hosts, monitors, isConnected, isSilent, switches: 1, member, x: 0, y: 0 };
}

function asGroup(group: Group): Node {
  const { id, hosts, switches, is_connected: isConnected, is_silent } = group;
  const isSilent = is_silent === true;
  return { id, hosts, switches, isConnected, isSilent, monitors: 0, group, x: 0, y: 0 };
}

/** The state of a switch, or of a group. */
export function nodeCondition({ group, isConnected, isSilent }: Node): Verdict {
  const how = condition({ is_connected: isConnected, is_silent: isSilent });
  return group && how.tone !== "good" ? { ...how, word: `some ${how.word}` } : how;
}

function edges(links: Link[], index: Map<string, number>): Edge[] {
  const pairs = new Map<string, Edge[]>();
  for (const link of links) {
    const [a, b] = [index.get(link.a.switch), index.get(link.b.switch)];
    if (a === undefined || b === undefined || a === b) continue;
    const key = a < b ? `${a} ${b}` : `${b} ${a}`;
    const parallel = pairs.get(key) ?? [];
    pairs.set(key, parallel);
    parallel.push({ a, b, link, slot: parallel.length, slots: 1 });
  }
  const all = [...pairs.values()];
  all.forEach((parallel) => parallel.forEach((edge) => (edge.slots = parallel.length)));
  return all.flat();
}

export const graphOf = ({ nodes, edges }: Frame): Graph => ({
  hosts: nodes.map((node) => node.hosts),
  edges: edges.filter((edge) => edge.slot === 0).map(({ a, b }): [number, number] => [a, b]),
});

export function place(nodes: Node[], positions: Positions): void {
  nodes.forEach((node, i) => {
    node.x = positions[2 * i] ?? 0;
    node.y = positions[2 * i + 1] ?? 0;
  });
}

/** Hosts on rings around their switch, in the order of their ports. */
export function spots(node: Point, hosts: HostReport[], monitors: Set<string>): Spot[] {
  const sorted = [...hosts].sort(
    (a, b) => Number(a.port) - Number(b.port) || (a.mac < b.mac ? -1 : 1),
  );
  return sorted.map((host, i) => {
    const isMonitor = monitors.has(`${host.switch}/${host.port}`);
    return { host, isMonitor, ...onRing(node, i, sorted.length) };
  });
}

/** Place `i` of `count` around a node: starts below it, on rings of growing size. */
function onRing(node: Point, i: number, count: number): Point {
  let [ring, first] = [0, 0];
  while (i - first >= RING_FIRST + ring * RING_MORE) {
    first += RING_FIRST + ring * RING_MORE;
    ring += 1;
  }
  const room = RING_FIRST + ring * RING_MORE;
  const here = Math.min(room, count - first);
  const wedge =
    here === room ? (2 * Math.PI) / room : Math.min((2 * Math.PI) / here, Math.PI / 4.5);
  const angle = Math.PI / 2 - (i - first - (here - 1) / 2) * wedge;
  // Switches are wider than high.
  const [wide, high] = [RING_WIDTH + ring * RING_GAP, RING_HEIGHT + ring * RING_GAP];
  return { x: node.x + wide * Math.cos(angle), y: node.y + high * Math.sin(angle) };
}

/** Where copies for a port are drawn to: its host, or a place of its own without one. */
export function outlet(monitor: MonitorPort, scene: Frame, known: Spot[]): Outlet | undefined {
  const node = monitor.switch === undefined ? undefined : scene.index.get(monitor.switch);
  if (node === undefined) return undefined;
  const at = known.find(
    ({ host }) => host.switch === monitor.switch && host.port === String(monitor.port),
  );
  if (at) return { monitor, node, x: at.x, y: at.y };
  // Left and right of the switch, where there are neither hosts nor most links.
  const side = OUTLET_ANGLES[monitor.port % OUTLET_ANGLES.length]!;
  const { x, y } = scene.nodes[node]!;
  return {
    monitor,
    node,
    x: x + OUTLET_WIDTH * Math.cos(side),
    y: y + OUTLET_HEIGHT * Math.sin(side),
  };
}

/** The lines of all TAPs, side by side where they share a link. */
export function ways(reports: PolicyReport[], scene: Frame, known: Spot[]): Way[] {
  return reports.flatMap((report, index) => {
    const offset = lane(index % LANES, Math.min(reports.length, LANES), LANE_GAP);
    return pathsOf(report).flatMap((path) => {
      const points = beside(line(path, report, scene, known), offset);
      return points.length > 1
        ? [{ report, monitor: path.monitor, tone: tone(report), points }]
        : [];
    });
  });
}

/** The paths that the controller reports, or only the monitors' switches without them. */
function pathsOf(report: PolicyReport): CopyPath[] {
  const told = paths(report);
  if (told.length > 0) return told;
  return monitorPorts(report).flatMap((monitor) =>
    monitor.switch === undefined ? [] : { monitor, hops: [{ switch: monitor.switch }] },
  );
}

function line(path: CopyPath, report: PolicyReport, scene: Frame, known: Spot[]): Point[] {
  const nodes = path.hops.flatMap((hop) => scene.index.get(hop.switch) ?? []);
  const switches = new Set(path.hops.map((hop) => hop.switch));
  const watched = known.find(({ host }) => switches.has(host.switch) && isWatched(host, report));
  const way: Point[] = nodes.map((node) => scene.nodes[node]!);
  const out = outlet(path.monitor, scene, known);
  if (watched) way.unshift(watched);
  if (out) {
    if (nodes[nodes.length - 1] !== out.node) way.push(scene.nodes[out.node]!);
    way.push(out);
  }
  return way;
}

/** Whether the policy names this host as a source. */
export function isWatched(host: HostReport, { policy }: PolicyReport): boolean {
  if (policy["src-mac"]?.toLowerCase() === host.mac.toLowerCase()) return true;
  const prefix = policy["src-ip"] === undefined ? undefined : parsePrefix(policy["src-ip"]);
  if (!prefix || prefix.bits === 0) return false;
  return host.addresses.some((address) => {
    const bytes = parseIp(address);
    return bytes !== undefined && prefixContains(prefix, bytes);
  });
}

const RING_FIRST = 16;
const RING_MORE = 8;
const RING_WIDTH = 76;
const RING_HEIGHT = 54;
const RING_GAP = 16;
const OUTLET_WIDTH = 72;
const OUTLET_HEIGHT = 50;
const OUTLET_ANGLES = [0, 180, -35, 215].map((degrees) => (degrees * Math.PI) / 180);
/** Number of TAPs side by side; further ones share lanes. */
const LANES = 6;
const LANE_GAP = 5;
