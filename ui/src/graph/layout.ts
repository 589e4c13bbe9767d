// Computes node positions: by layers if the fabric has them, otherwise force-directed.
//
// Pure and deterministic: the same graph gives the same picture, and nodes placed before stay near
// their positions. A force-directed step costs n log n (Barnes and Hut 1986).

/** Nodes are indexes; an edge joins two of them. */
export interface Graph {
  /** Number of hosts at each node. Nodes with hosts are the edge of the fabric. */
  hosts: number[];
  edges: [number, number][];
}

export type Mode = "auto" | "layers" | "forces";

/** x and y of each node in turn, in picture units. */
export type Positions = Float64Array;

/** Distance between neighbours. */
export const SPACING = 140;

/** The layer of each node, from the hosts up; `undefined` if the fabric is not layered. */
export function layers(graph: Graph): number[] | undefined {
  const near = neighbours(graph);
  const rank = distances(
    near,
    graph.hosts.flatMap((hosts, node) => (hosts > 0 ? [node] : [])),
  );
  const highest = rank.reduce((max, r) => Math.max(max, r), 0);
  if (highest < 1 || rank.includes(-1)) return undefined;
  const flat = graph.edges.filter(([a, b]) => rank[a] === rank[b]).length;
  return flat <= graph.edges.length * MOST_FLAT ? rank : undefined;
}

/** Initial positions, and whether they are final. */
export function begin(
  graph: Graph,
  mode: Mode,
  before?: Positions,
): { positions: Positions; isFinal: boolean } {
  const rank = mode === "forces" ? undefined : layers(graph);
  if (rank) {
    const isSmall = graph.hosts.length <= MOST_IN_ROWS;
    return { positions: isSmall ? inRows(graph, rank) : inRings(graph, rank), isFinal: true };
  }
  const positions =
    before?.length === 2 * graph.hosts.length ? settled(graph, before) : around(graph);
  return { positions, isFinal: graph.hosts.length < 2 };
}

/** Rows, with the highest layer at the top and the hosts' at the bottom. */
function inRows(graph: Graph, rank: number[]): Positions {
  const positions = new Float64Array(2 * rank.length);
  const rows = orderedRows(graph, rank);
  const widest = Math.max(...rows.map((row) => row.length));
  // The longer the rows, the steeper their links must be to stay distinguishable.
  const rise = SPACING * Math.max(1.5, widest / 4);
  rows.forEach((row, level) => {
    const least = row.some((node) => graph.hosts[node]! >= WIDE_FROM) ? 1.3 : 1;
    const gap = SPACING * Math.max(least, Math.min(2.2, widest / row.length));
    row.forEach((node, index) => {
      positions[2 * node] = (index - (row.length - 1) / 2) * gap;
      positions[2 * node + 1] = (rows.length - 1 - level) * rise;
    });
  });
  return positions;
}

/** Rings, with the hosts' layer outside and the highest in the middle; connected nodes are near. */
function inRings(graph: Graph, rank: number[]): Positions {
  const positions = new Float64Array(2 * rank.length);
  const top = rank.reduce((max, r) => Math.max(max, r), 0);
  const near = neighbours(graph);
  const angle = new Float64Array(rank.length);
  const rows = Array.from({ length: top + 1 }, (): number[] => []);
  for (const node of byPart(near, rank, top)) rows[rank[node]!]!.push(node);
  const edge = rows[0]!;
  const depth = Math.min(DEEPEST_RING, Math.max(1, Math.round(edge.length / RING_STAGGER)));
  const radius = ((edge.length / depth) * SPACING) / (2 * Math.PI);
  rows.forEach((row, level) => {
    const below = (node: number) => near[node]!.filter((n) => rank[n] === level - 1);
    const mean = new Map(row.map((n, i) => [n, level ? meanAngle(below(n), angle) : i]));
    row.sort((a, b) => mean.get(a)! - mean.get(b)! || a - b);
    row.forEach((node, i) => {
      angle[node] = (2 * Math.PI * (i + 0.5)) / row.length;
      const out = level === 0 ? (i % depth) * SPACING : 0;
      const far = Math.max(radius, SPACING * 2) * (1 - level / (top + 0.6)) + out;
      positions[2 * node] = far * Math.cos(angle[node]!);
      positions[2 * node + 1] = far * Math.sin(angle[node]!);
    });
  });
  return positions;
}

/** All nodes, with parts that are connected below the highest layer together and first. */
function byPart(near: number[][], rank: number[], top: number): number[] {
  const seen = new Set<number>();
  const order: number[] = [];
  for (let start = 0; start < rank.length; start++) {
    if (seen.has(start) || rank[start] === top) continue;
    const queue = [start];
    seen.add(start);
    for (let at = 0; at < queue.length; at++) {
      order.push(queue[at]!);
      for (const next of near[queue[at]!]!) {
        if (seen.has(next) || rank[next] === top) continue;
        seen.add(next);
        queue.push(next);
      }
    }
  }
  return [...order, ...rank.flatMap((r, node) => (r === top ? [node] : []))];
}

/** The circular mean of angles, from 0 to 2π. */
function meanAngle(nodes: number[], angle: Float64Array): number {
  const sum = (f: (a: number) => number) => nodes.reduce((all, n) => all + f(angle[n]!), 0);
  const mean = Math.atan2(sum(Math.sin), sum(Math.cos));
  return mean < 0 ? mean + 2 * Math.PI : mean;
}

/** Reduces crossings: sorts each row by the mean position of its neighbours, several times. */
function orderedRows(graph: Graph, rank: number[]): number[][] {
  const near = neighbours(graph);
  const rows: number[][] = [];
  rank.forEach((level, node) => (rows[level] ??= []).push(node));
  const place = new Float64Array(rank.length);
  const settle = () =>
    rows.forEach((row) =>
      row.forEach((node, i) => {
        place[node] = (i + 0.5) / row.length;
      }),
    );
  settle();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const row of rows) {
      const mean = new Map(row.map((node) => [node, meanOf(near[node]!, place)]));
      row.sort((a, b) => mean.get(a)! - mean.get(b)! || a - b);
    }
    settle();
  }
  return rows;
}

function meanOf(nodes: number[], place: Float64Array): number {
  if (nodes.length === 0) return 0.5;
  return nodes.reduce((sum, node) => sum + place[node]!, 0) / nodes.length;
}

/**
 * Start positions for the forces: a circle for a ring, otherwise a spiral in breadth-first order
 * from the nodes of highest degree.
 */
function around(graph: Graph): Positions {
  const count = graph.hosts.length;
  const positions = new Float64Array(2 * count);
  if (isRing(graph)) return ring(graph);
  const near = neighbours(graph);
  const angle = new Float64Array(count).fill(NaN);
  let turn = 0;
  const byDegree = Array.from({ length: count }, (_, i) => i).sort(
    (a, b) => near[b]!.length - near[a]!.length || a - b,
  );
  for (const root of byDegree) {
    if (!Number.isNaN(angle[root]!)) continue;
    const distance = distances(near, [root]);
    const order = distance
      .flatMap((d, node) => (d >= 0 ? [node] : []))
      .sort((a, b) => distance[a]! - distance[b]! || a - b);
    for (const node of order) {
      angle[node] = turn += GOLDEN_ANGLE;
      const radius = SPACING * 0.6 * Math.sqrt(turn / GOLDEN_ANGLE);
      positions[2 * node] = radius * Math.cos(turn);
      positions[2 * node + 1] = radius * Math.sin(turn);
    }
  }
  return positions;
}

const isRing = (graph: Graph): boolean =>
  graph.hosts.length > 2 &&
  graph.edges.length === graph.hosts.length &&
  neighbours(graph).every((near) => new Set(near).size === 2);

function ring(graph: Graph): Positions {
  const near = neighbours(graph);
  const positions = new Float64Array(2 * graph.hosts.length);
  const radius = (SPACING * graph.hosts.length) / (2 * Math.PI) + SPACING / 3;
  const seen = new Set<number>();
  for (let node: number | undefined = 0; node !== undefined; ) {
    const angle = (2 * Math.PI * seen.size) / graph.hosts.length - Math.PI / 2;
    positions[2 * node] = radius * Math.cos(angle);
    positions[2 * node + 1] = radius * Math.sin(angle);
    seen.add(node);
    node = near[node]!.find((next) => !seen.has(next));
  }
  return positions;
}

/** Old positions, with new nodes (NaN) at the mean of their neighbours. */
function settled(graph: Graph, before: Positions): Positions {
  const positions = before.slice();
  const fresh = around(graph);
  const near = neighbours(graph);
  for (let node = 0; node < graph.hosts.length; node++) {
    if (!Number.isNaN(positions[2 * node]!)) continue;
    const known = near[node]!.filter((n) => !Number.isNaN(before[2 * n]!));
    for (const axis of [0, 1]) {
      const sum = known.reduce((all, n) => all + before[2 * n + axis]!, 0);
      const nudge = fresh[2 * node + axis]! * 0.1;
      positions[2 * node + axis] = known.length
        ? sum / known.length + nudge
        : fresh[2 * node + axis]!;
    }
  }
  return positions;
}

/** Force-directed layout, improved step by step until movements are small. */
export class Forces {
  private heat: number;
  private readonly force: Float64Array;

  constructor(
    private readonly graph: Graph,
    readonly positions: Positions,
    isKnown = false,
  ) {
    this.heat = isKnown ? SPACING * 0.15 : SPACING;
    this.force = new Float64Array(positions.length);
  }

  get isDone(): boolean {
    return this.heat < SPACING * 0.01;
  }

  /** One step: nodes repel each other, links pull, and a weak force pulls to the centre. */
  step(): void {
    this.force.fill(0);
    this.repel();
    this.pull();
    this.move();
    this.heat *= COOLING;
  }

  private repel(): void {
    const tree = Quad.of(this.positions);
    for (let node = 0; node < this.graph.hosts.length; node++) {
      tree.push(this.positions, node, this.force);
    }
  }

  private pull(): void {
    const { positions, force } = this;
    for (const [a, b] of this.graph.edges) {
      const dx = positions[2 * b]! - positions[2 * a]!;
      const dy = positions[2 * b + 1]! - positions[2 * a + 1]!;
      const strength = Math.hypot(dx, dy) / SPACING;
      force[2 * a]! += dx * strength;
      force[2 * a + 1]! += dy * strength;
      force[2 * b]! -= dx * strength;
      force[2 * b + 1]! -= dy * strength;
    }
  }

  private move(): void {
    const { positions, force } = this;
    for (let i = 0; i < positions.length; i += 2) {
      const fx = force[i]! - positions[i]! * GRAVITY;
      const fy = force[i + 1]! - positions[i + 1]! * GRAVITY;
      const step = Math.min(this.heat, Math.hypot(fx, fy)) / (Math.hypot(fx, fy) || 1);
      positions[i]! += fx * step;
      positions[i + 1]! += fy * step;
    }
  }
}

/** A node of the quadtree with its mass; distant ones act as one body. */
class Quad {
  private mass = 0;
  private x = 0;
  private y = 0;
  private children: (Quad | undefined)[] | undefined;

  private constructor(
    private left: number,
    private top: number,
    private side: number,
  ) {}

  static of(positions: Positions): Quad {
    let [low, high] = [Infinity, -Infinity];
    for (const value of positions) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    const root = new Quad(low, low, Math.max(high - low, 1));
    for (let i = 0; i < positions.length; i += 2) root.add(positions[i]!, positions[i + 1]!, 1, 0);
    return root;
  }

  private add(x: number, y: number, mass: number, depth: number): void {
    if (this.mass > 0 && depth < DEEPEST) {
      if (!this.children) {
        this.children = [];
        this.child(this.x, this.y).add(this.x, this.y, this.mass, depth + 1);
      }
      this.child(x, y).add(x, y, mass, depth + 1);
    }
    this.x = (this.x * this.mass + x * mass) / (this.mass + mass);
    this.y = (this.y * this.mass + y * mass) / (this.mass + mass);
    this.mass += mass;
  }

  private child(x: number, y: number): Quad {
    const half = this.side / 2;
    const [right, low] = [x >= this.left + half, y >= this.top + half];
    const index = (right ? 1 : 0) + (low ? 2 : 0);
    const make = () => new Quad(this.left + (right ? half : 0), this.top + (low ? half : 0), half);
    return (this.children![index] ??= make());
  }

  /** Adds the force of this square on `node`. */
  push(positions: Positions, node: number, force: Float64Array): void {
    const dx = positions[2 * node]! - this.x;
    const dy = positions[2 * node + 1]! - this.y;
    const square = dx * dx + dy * dy;
    if (!this.children || this.side * this.side < square * FAR) {
      if (square < 1e-9) return;
      // Falls with the square of the distance, so that groups do not push each other far apart.
      const strength = (this.mass * SPACING ** 3) / (square * Math.sqrt(square) + 1);
      force[2 * node]! += dx * strength;
      force[2 * node + 1]! += dy * strength;
      return;
    }
    for (const child of this.children) child?.push(positions, node, force);
  }
}

/** The neighbours of each node. */
export function neighbours(graph: Graph): number[][] {
  const near: number[][] = graph.hosts.map(() => []);
  for (const [a, b] of graph.edges) {
    if (a === b) continue;
    near[a]!.push(b);
    near[b]!.push(a);
  }
  return near;
}

/** Number of hops from the nearest of `roots` to each node; -1 if unreachable. */
export function distances(near: number[][], roots: number[]): number[] {
  const distance = new Array<number>(near.length).fill(-1);
  const queue = [...roots];
  for (const root of roots) distance[root] = 0;
  for (let at = 0; at < queue.length; at++) {
    const node = queue[at]!;
    for (const next of near[node]!) {
      if (distance[next]! >= 0) continue;
      distance[next] = distance[node]! + 1;
      queue.push(next);
    }
  }
  return distance;
}

/** Fabrics with more nodes than this are drawn in rings. */
const MOST_IN_ROWS = 80;
/** From this number on, the hosts of a switch reach those of the next switch. */
const WIDE_FROM = 4;
/** Nodes on the outermost ring for each ring that it is split into, up to `DEEPEST_RING` rings. */
const RING_STAGGER = 150;
const DEEPEST_RING = 4;
/** Maximum share of links within a layer. */
const MOST_FLAT = 0.1;
const SWEEPS = 6;
const GOLDEN_ANGLE = Math.PI * (3 - Math.sqrt(5));
/** About 150 steps from start to end. */
const COOLING = 0.97;
const GRAVITY = 0.08;
/** A square acts as one body if its side is less than 0.9 times its distance (squared here). */
const FAR = 0.81;
const DEEPEST = 24;
