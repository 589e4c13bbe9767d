import assert from "node:assert/strict";
import { test } from "node:test";
import type { HostReport, PolicyReport } from "../../src/api/types";
import { aggregate, only } from "../../src/graph/aggregate";
import { Forces, begin, layers } from "../../src/graph/layout";
import { oneEach } from "../../src/graph/captions";
import { type Label, Space, arrange, around, boxAt } from "../../src/graph/labels";
import { type Way, frame, graphOf, place, spots, ways } from "../../src/graph/scene";
import {
  beside,
  bounds,
  clip,
  distanceTo,
  fit,
  nearest,
  overlap,
  roomyScale,
  toPicture,
  toScreen,
  zoom,
} from "../../src/graph/geometry";
import { big, leafSpine, name, ring, topology } from "./fabrics";

const graph = (fabric: Parameters<typeof frame>[0]) => graphOf(frame(fabric));
const finite = (positions: Float64Array) => positions.every(Number.isFinite);

test("a leaf-spine fabric is drawn in two rows", () => {
  const g = graph(leafSpine(2, 4));
  assert.deepEqual(layers(g), [1, 1, 0, 0, 0, 0]);
  const { positions, isFinal } = begin(g, "auto");
  assert.ok(isFinal);
  const rows = [0, 1, 2, 3, 4, 5].map((i) => positions[2 * i + 1]);
  assert.equal(new Set(rows.slice(0, 2)).size, 1);
  assert.equal(new Set(rows.slice(2)).size, 1);
  assert.ok(rows[0]! < rows[2]!, "spines above leaves");
  const places = new Set(
    [0, 1, 2, 3, 4, 5].map((i) => `${positions[2 * i]} ${positions[2 * i + 1]}`),
  );
  assert.equal(places.size, 6);
});

test("a ring and a line have no layers", () => {
  assert.equal(layers(graph(ring(5))), undefined);
  assert.equal(
    layers(
      graph(
        topology(
          3,
          [
            [0, 1],
            [1, 2],
          ],
          () => 1,
        ),
      ),
    ),
    undefined,
  );
  const { positions } = begin(graph(ring(8)), "auto");
  const radius = (i: number) => Math.hypot(positions[2 * i]!, positions[2 * i + 1]!);
  for (let i = 1; i < 8; i++) assert.ok(Math.abs(radius(i) - radius(0)) < 1e-6);
});

test("a large fabric is drawn in rings, with its parts together", () => {
  const fabric = big();
  const g = graph(fabric);
  const { positions, isFinal } = begin(g, "auto");
  assert.ok(isFinal && finite(positions));
  const at = (i: number) => ({ x: positions[2 * i]!, y: positions[2 * i + 1]! });
  const radius = (i: number) => Math.hypot(at(i).x, at(i).y);
  const leaves = g.hosts.flatMap((hosts, i) => (hosts > 0 ? [i] : []));
  const inner = g.hosts.flatMap((hosts, i) => (hosts === 0 ? [i] : []));
  const outermost = inner.reduce((max, i) => Math.max(max, radius(i)), 0);
  assert.ok(
    leaves.every((i) => radius(i) > outermost),
    "leaves outside",
  );
  const apart = leaves.map((a) =>
    Math.min(
      ...leaves.filter((b) => b !== a).map((b) => Math.hypot(at(a).x - at(b).x, at(a).y - at(b).y)),
    ),
  );
  assert.ok(Math.min(...apart) > 80, "room for a switch and its hosts");
  const pod = leaves.slice(0, 10);
  const spread = Math.hypot(at(pod[0]!).x - at(pod[9]!).x, at(pod[0]!).y - at(pod[9]!).y);
  assert.ok(spread < 1000, "the leaves of a pod lie together");
});

test("forces end, keep nodes apart, and give the same each time", () => {
  const run = () => {
    const g = graph(leafSpine(4, 60));
    const forces = new Forces(g, begin(g, "forces").positions);
    let steps = 0;
    while (!forces.isDone) {
      forces.step();
      assert.ok(++steps < 1000, "it ends");
    }
    return forces.positions;
  };
  const positions = run();
  assert.ok(finite(positions));
  for (let a = 0; a < 64; a++) {
    for (let b = a + 1; b < 64; b++) {
      const apart = Math.hypot(
        positions[2 * a]! - positions[2 * b]!,
        positions[2 * a + 1]! - positions[2 * b + 1]!,
      );
      assert.ok(apart > 5, `${a} and ${b} lie on each other`);
    }
  }
  assert.deepEqual(run(), positions);
});

test("nodes without links and in one place do no harm", () => {
  for (const fabric of [
    topology(1, [], () => 0),
    topology(5, [], () => 0),
    topology(
      2,
      [
        [0, 1],
        [0, 1],
      ],
      () => 0,
    ),
  ]) {
    const g = graph(fabric);
    const forces = new Forces(g, new Float64Array(2 * g.hosts.length));
    while (!forces.isDone) forces.step();
    assert.ok(finite(forces.positions));
    assert.ok(finite(begin(g, "auto").positions));
  }
});

test("nodes stay where they were when one comes", () => {
  const g = graph(ring(6));
  const before = new Float64Array(12).map((_, i) => i * 50);
  before[10] = before[11] = NaN;
  const { positions } = begin(g, "forces", before);
  assert.deepEqual([...positions.slice(0, 10)], [...before.slice(0, 10)]);
  assert.ok(finite(positions));
});

test("1,000 switches become at most as many groups as asked for, and none is lost", () => {
  const fabric = big();
  assert.equal(fabric.switches.length, 1000);
  assert.equal(
    fabric.switches.reduce((sum, s) => sum + s.hosts, 0),
    10_000,
  );
  const small = aggregate(fabric, 40);
  const groups = small.groups ?? [];
  assert.ok(groups.length <= 40 && groups.length > 1, `${groups.length} groups`);
  assert.equal(
    groups.reduce((sum, g) => sum + g.switches, 0),
    1000,
  );
  assert.equal(
    groups.reduce((sum, g) => sum + g.hosts, 0),
    10_000,
  );
  assert.equal(new Set(groups.flatMap((g) => g.members)).size, 1000);
  assert.ok((small.links ?? []).length <= (40 * 39) / 2);
  assert.ok((small.links ?? []).every((l) => l.a.switch !== l.b.switch));
  assert.equal(aggregate(fabric, 1000), fabric, "nothing is joined without need");
});

test("a group with a lost switch is not connected, and can be looked into", () => {
  const fabric = ring(10);
  fabric.switches[3]!.is_connected = false;
  const groups = aggregate(fabric, 3).groups!;
  assert.equal(groups.filter((g) => !g.is_connected).length, 1);
  const inside = only(fabric, groups[0]!.members);
  assert.equal(inside.switches.length, groups[0]!.members.length);
  assert.ok(inside.links!.every((l) => groups[0]!.members.includes(l.a.switch)));
});

test("islands are joined to some group", () => {
  const groups = aggregate(
    topology(9, [[0, 1]], () => 1),
    4,
  ).groups!;
  assert.equal(
    groups.reduce((sum, g) => sum + g.switches, 0),
    9,
  );
});

test("hosts lie around their switch, each at a place of its own", () => {
  const list = Array.from({ length: 60 }, (_, i) => host("0x1", i + 1));
  const places = spots({ x: 5, y: 5 }, list, new Set(["0x1/3"]));
  assert.equal(new Set(places.map((p) => `${p.x.toFixed(3)} ${p.y.toFixed(3)}`)).size, 60);
  assert.ok(places.every((p) => Math.hypot(p.x - 5, p.y - 5) > 40));
  assert.deepEqual(
    places.filter((p) => p.isMonitor).map((p) => p.host.port),
    ["3"],
  );
});

function host(id: string, port: number): HostReport {
  const mac = `02:00:00:00:00:${port.toString(16).padStart(2, "0")}`;
  return {
    switch: id,
    port: String(port),
    port_name: `t${port}`,
    mac,
    vlan: null,
    addresses: [`10.0.0.${port}`],
  };
}

test("a TAP is a line from the watched host over the switches to the monitor", () => {
  const shape = frame(
    topology(
      3,
      [
        [0, 1],
        [1, 2],
      ],
      () => 1,
    ),
  );
  place(shape.nodes, Float64Array.of(0, 0, 100, 0, 200, 0));
  const known = [...spots(shape.nodes[0]!, [host("0x1", 1)], new Set())];
  const monitor = { switch: name(2), port: 9, name: "watch0" };
  const report: PolicyReport = {
    policy: { name: "web", monitor: "0x3/9", "src-ip": "10.0.0.1" },
    state: { is: "active" },
    matched: { packets: 0, bytes: 0 },
    copied: [],
    adds_up: true,
    is_complete: true,
    path: [{ monitor, hops: [{ switch: "0x1" }, { switch: "0x2" }, { switch: "0x3" }] }],
  };
  const [way] = ways([report], shape, known);
  assert.equal(way!.points.length, 5, "host, three switches, monitor");
  assert.deepEqual(
    [way!.points[0]!.x, way!.points[0]!.y].map(Math.round),
    [known[0]!.x, known[0]!.y].map(Math.round),
  );
  const without = ways([{ ...report, path: undefined, monitor }], shape, known);
  assert.equal(without[0]!.points.length, 2, "only what is known: the monitor at its switch");
});

test("a TAP is named once at each of its monitors, whatever the number of its ways", () => {
  const monitor = { switch: "0x3", port: 9, name: "watch0" };
  const way = (name: string, port: number) =>
    ({ report: { policy: { name } }, monitor: { ...monitor, port } }) as unknown as Way;
  const [web, again, other, db] = [way("web", 9), way("web", 9), way("web", 8), way("db", 9)];
  assert.deepEqual(oneEach([web, again, other, db]), [web, other, db]);
});

test("TAPs on one link lie side by side", () => {
  const points = [
    { x: 0, y: 0 },
    { x: 100, y: 0 },
    { x: 100, y: 100 },
  ];
  const left = beside(points, -4);
  assert.deepEqual(left[0], { x: 0, y: -4 });
  assert.ok(Math.abs(left[1]!.x - 104) < 1e-9 && Math.abs(left[1]!.y + 4) < 1e-9);
  const back = beside(
    [
      { x: 0, y: 0 },
      { x: 9, y: 0 },
      { x: 0, y: 0 },
    ],
    3,
  );
  assert.ok(back.every((p) => Number.isFinite(p.x) && Number.isFinite(p.y)));
  assert.equal(
    beside(
      [
        { x: 1, y: 1 },
        { x: 1, y: 1 },
      ],
      3,
    ).length,
    1,
  );
});

test("what is under the pointer stays there while it is zoomed", () => {
  const size = { x: 800, y: 600 };
  const camera = { x: 10, y: -20, scale: 0.7 };
  const at = { x: 123, y: 456 };
  const before = toPicture(camera, size, at);
  const after = toScreen(zoom(camera, size, at, 1.8), size, before);
  assert.ok(Math.hypot(after.x - at.x, after.y - at.y) < 1e-6);
  const all = fit(
    bounds([
      { x: 0, y: 0 },
      { x: 1000, y: 100 },
    ]),
    size,
    50,
  );
  const corner = toScreen(all, size, { x: 1000, y: 100 });
  assert.ok(corner.x <= 800 && corner.y <= 600);
  assert.equal(distanceTo({ x: 5, y: 5 }, { x: 0, y: 0 }, { x: 10, y: 0 }), 5);
});

test("of a line, what is inside the picture is drawn", () => {
  const box = { left: 0, top: 0, right: 10, bottom: 20 };
  const part = (...[ax, ay, bx, by]: [number, number, number, number]) =>
    clip({ x: ax, y: ay }, { x: bx, y: by }, box)?.flatMap(({ x, y }) => [x, y]);
  assert.deepEqual(part(1, 2, 3, 4), [1, 2, 3, 4], "all of it");
  assert.deepEqual(part(-10, 5, 30, 5), [0, 5, 10, 5], "across");
  assert.deepEqual(part(5, 30, 5, 10), [5, 20, 5, 10], "its end, in the same direction");
  assert.deepEqual(part(-5, 0, 5, 10), [0, 5, 5, 10]);
  assert.equal(part(-5, 5, -1, 5), undefined, "beside");
  assert.equal(part(-8, 4, 4, -8), undefined, "past a corner, in spite of its bounding box");
  assert.equal(part(12, -5, 12, 50), undefined, "along");
});

test("arrow keys go to the next node in their direction", () => {
  const points = [
    { x: 0, y: 0 },
    { x: 100, y: 10 },
    { x: 200, y: 0 },
    { x: 0, y: 100 },
  ];
  assert.equal(nearest(points, 0, { x: 1, y: 0 }), 1);
  assert.equal(nearest(points, 0, { x: 0, y: 1 }), 3);
  assert.equal(nearest(points, 0, { x: -1, y: 0 }), -1);
  assert.equal(nearest(points, -1, { x: 1, y: 0 }), 0);
});

const label = (words: string, rank: Label["rank"], at = { x: 100, y: 100 }): Label => ({
  words,
  rank,
  colour: "text",
  px: 11,
  isBold: false,
  size: { x: 40, y: 14 },
  places: around(at, { x: 10, y: 10 }, { x: 40, y: 14 }),
});
const screen = { left: 0, top: 0, right: 200, bottom: 200 };

test("words choose their place by rank, and lie apart", () => {
  const ranks = ["load", "host", "switch", "monitor", "chosen"] as const;
  const placed = arrange(
    ranks.map((rank) => label(rank, rank)),
    new Space(),
    screen,
  );
  assert.deepEqual(
    placed.map(({ words }) => words),
    ["chosen", "monitor", "switch", "host"],
    "the least important one found no place",
  );
  assert.deepEqual(placed[0]!.at, { x: 100, y: 119 }, "the best place");
  for (const [i, a] of placed.entries())
    for (const b of placed.slice(i + 1)) assert.ok(!overlap(a.box, b.box), `${a.words} ${b.words}`);
});

test("words keep off things, and on the screen; what is chosen is there in any case", () => {
  const space = new Space();
  space.take(boxAt({ x: 100, y: 119 }, { x: 60, y: 20 }));
  const [moved] = arrange([label("a", "host")], space, screen);
  assert.deepEqual(moved!.at, { x: 100, y: 81 }, "above, since something is below");
  const corner = { x: 195, y: 5 };
  const [inside] = arrange([label("b", "host", corner)], space, screen);
  assert.ok(inside!.box.right <= 200 && inside!.box.top >= 0);
  space.take(boxAt({ x: 100, y: 100 }, { x: 2000, y: 2000 }));
  assert.deepEqual(arrange([label("c", "monitor")], space, screen), []);
  assert.deepEqual(arrange([label("d", "chosen")], space, screen)[0]?.at, { x: 100, y: 119 });
});

test("a thing does not stand in its own way", () => {
  const space = new Space();
  const own = boxAt({ x: 50, y: 50 }, { x: 10, y: 10 });
  space.take(own);
  assert.ok(space.isFree(boxAt({ x: 50, y: 50 }, { x: 90, y: 40 }), own));
  assert.ok(!space.isFree(boxAt({ x: 50, y: 50 }, { x: 90, y: 40 })));
  space.take(boxAt({ x: -30, y: 40 }, { x: 100, y: 10 }));
  assert.ok(
    !space.isFree(boxAt({ x: 50, y: 50 }, { x: 90, y: 40 }), own),
    "left of the screen too",
  );
});

test("cards have room from the scale on at which almost none cover each other", () => {
  const row = Array.from({ length: 20 }, (_, i) => ({ x: i * 50, y: 0 }));
  assert.equal(roomyScale(row, { x: 100, y: 40 }), 2);
  const column = row.map(({ x, y }) => ({ x: y, y: x }));
  assert.equal(roomyScale(column, { x: 100, y: 40 }), 0.8);
  assert.equal(roomyScale([...row, { x: 0, y: 0 }], { x: 100, y: 40 }), 2, "but for a few");
  assert.equal(roomyScale([{ x: 3, y: 3 }], { x: 100, y: 40 }), 0, "one has room at any");
});
