// Joins switches into groups when there are too many to draw, as the controller does for
// `max_nodes`: for controllers without that, and for zooming into a group.
import type { Group, Link, Topology } from "../api/types";
import { distances, neighbours } from "./layout";

/** Reduces a topology to at most `most` nodes; returns it unchanged if it has no more. */
export function aggregate(topology: Topology, most: number): Topology {
  const { switches, links = [] } = topology;
  if (switches.length <= most) return topology;
  const index = new Map(switches.map((node, i) => [node.switch, i]));
  const edges = links.flatMap((link): [number, number][] => {
    const [a, b] = [index.get(link.a.switch), index.get(link.b.switch)];
    return a === undefined || b === undefined ? [] : [[a, b]];
  });
  const near = neighbours({ hosts: switches.map((node) => node.hosts), edges });
  const home = regions(near, seeds(near, most));
  const groups = grouped(topology, home);
  return { ...topology, switches: [], links: joined(links, groups), is_aggregated: true, groups };
}

/** Nodes far apart from each other: each next one is the farthest from all previous ones. */
function seeds(near: number[][], count: number): number[] {
  const chosen: number[] = [];
  const distance = new Array<number>(near.length).fill(Infinity);
  let next = 0;
  while (chosen.length < count) {
    chosen.push(next);
    distances(near, [next]).forEach((d, node) => {
      if (d >= 0) distance[node] = Math.min(distance[node]!, d);
    });
    let farthest = 0;
    distance.forEach((d, node) => {
      if (d > farthest) [farthest, next] = [d, node];
    });
    if (farthest === 0) break;
  }
  return chosen;
}

/** The nearest seed of each node. */
function regions(near: number[][], roots: number[]): number[] {
  const home = new Array<number>(near.length).fill(-1);
  const queue = [...roots];
  for (const root of roots) home[root] = root;
  for (let at = 0; at < queue.length; at++) {
    for (const next of near[queue[at]!]!) {
      if (home[next] !== -1) continue;
      home[next] = home[queue[at]!]!;
      queue.push(next);
    }
  }
  // Nodes that no seed reaches join the first one.
  return home.map((seed) => (seed === -1 ? roots[0]! : seed));
}

function grouped({ switches }: Topology, home: number[]): Group[] {
  const groups = new Map<number, Group>();
  switches.forEach((node, i) => {
    const seed = home[i]!;
    const group = groups.get(seed) ?? {
      id: `around ${switches[seed]!.switch}`,
      switches: 0,
      hosts: 0,
      is_connected: true,
      is_silent: false,
      members: [],
    };
    groups.set(seed, group);
    group.switches += 1;
    group.hosts += node.hosts;
    group.is_connected &&= node.is_connected;
    group.is_silent ||= node.is_silent === true;
    group.members.push(node.switch);
  });
  return [...groups.values()];
}

/** Links between groups: one for each pair, with the sum of their loads. */
function joined(links: Link[], groups: Group[]): Link[] {
  const home = new Map(groups.flatMap((group) => group.members.map((id) => [id, group.id])));
  const pairs = new Map<string, Link>();
  for (const link of links) {
    const [a, b] = [home.get(link.a.switch), home.get(link.b.switch)].sort();
    if (a === undefined || b === undefined || a === b) continue;
    const key = `${a}\n${b}`;
    const pair = pairs.get(key) ?? {
      a: { switch: a, port: null },
      b: { switch: b, port: null },
      is_up: false,
      is_tree: false,
    };
    pairs.set(key, pair);
    pair.is_up ||= link.is_up;
    pair.is_tree ||= link.is_tree !== false;
    const isTurned = home.get(link.a.switch) !== a;
    const [there, back] = [link.a_to_b_bits_per_second, link.b_to_a_bits_per_second];
    pair.bits_per_second = sum(pair.bits_per_second, link.bits_per_second);
    pair.a_to_b_bits_per_second = sum(pair.a_to_b_bits_per_second, isTurned ? back : there);
    pair.b_to_a_bits_per_second = sum(pair.b_to_a_bits_per_second, isTurned ? there : back);
  }
  return [...pairs.values()];
}

/** The sum of the known values. */
const sum = (a?: number | null, b?: number | null): number | null | undefined =>
  a == null || b == null ? (a ?? b) : a + b;

/** The part of a topology with these switches and the links between them. */
export function only(topology: Topology, members: Iterable<string>): Topology {
  const kept = new Set(members);
  return {
    ...topology,
    is_aggregated: false,
    groups: [],
    switches: topology.switches.filter((node) => kept.has(node.switch)),
    links: (topology.links ?? []).filter((l) => kept.has(l.a.switch) && kept.has(l.b.switch)),
  };
}
