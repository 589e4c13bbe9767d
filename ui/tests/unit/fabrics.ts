// Deterministic fabrics of various sizes for tests.
import type { Link, Topology } from "../../src/api/types";

export function topology(
  count: number,
  pairs: [number, number][],
  hosts: (i: number) => number,
): Topology {
  const ports = new Array<number>(count).fill(0);
  const end = (i: number) => ({ switch: name(i), port: ++ports[i]!, port_name: `p${ports[i]}` });
  const links: Link[] = pairs.map(([a, b], i) => ({
    a: end(a),
    b: end(b),
    is_up: true,
    is_tree: true,
    latency_ns: 50_000 + i,
    bits_per_second: (i % 7) * 1e8,
  }));
  const switches = Array.from({ length: count }, (_, i) => ({
    switch: name(i),
    is_connected: true,
    is_ours: true,
    ports: ports[i]! + hosts(i),
    hosts: hosts(i),
    monitors: 0,
  }));
  return { generation: 1, switches, links, is_aggregated: false, groups: [] };
}

export const name = (i: number): string => `0x${(i + 1).toString(16)}`;

/** Every leaf is connected to every spine; the hosts are at the leaves. */
export function leafSpine(spines: number, leaves: number, hosts = 4): Topology {
  const pairs: [number, number][] = [];
  for (let leaf = 0; leaf < leaves; leaf++) {
    for (let spine = 0; spine < spines; spine++) pairs.push([spine, spines + leaf]);
  }
  return topology(spines + leaves, pairs, (i) => (i < spines ? 0 : hosts));
}

export function ring(count: number, hosts = 2): Topology {
  const pairs = Array.from({ length: count }, (_, i): [number, number] => [i, (i + 1) % count]);
  return topology(count, pairs, () => hosts);
}

/** Switches with three or four links each, to near and distant ones: neither layered nor a ring. */
export function mesh(count: number): Topology {
  const pairs = Array.from({ length: count }, (_, i): [number, number][] => [
    [i, (i + 1) % count],
    [i, (i * 7 + 3) % count],
  ]);
  return topology(
    count,
    pairs.flat().filter(([a, b]) => a !== b),
    (i) => i % 5,
  );
}

/** 40 pods of leaf and spine below a core: 1,000 switches and 10,000 hosts. */
export function big(): Topology {
  const [core, count, spines, leaves] = [40, 40, 4, 20];
  const perPod = spines + leaves;
  const pairs: [number, number][] = [];
  for (let pod = 0; pod < count; pod++) {
    const first = core + pod * perPod;
    for (let spine = 0; spine < spines; spine++) {
      for (let up = 0; up < 2; up++) pairs.push([(pod + spine * 2 + up) % core, first + spine]);
      for (let leaf = spine % 2; leaf < leaves; leaf += 2)
        pairs.push([first + spine, first + spines + leaf]);
    }
  }
  const isLeaf = (i: number) => i >= core && (i - core) % perPod >= spines;
  // 800 leaves with 12 hosts each, and one more at every second one.
  return topology(core + count * perPod, pairs, (i) => (isLeaf(i) ? 12 + (i % 2) : 0));
}
