// Labels of the picture: none covers another label or a node, on small and dense fabrics, and
// important objects keep theirs.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import type { Topology } from "../../src/api/types";
import type { Renderer } from "../../src/graph/renderer";
import { leafSpine, mesh, ring } from "../unit/fabrics";
import { browser, controller, options, setUp } from "./stage";
import { list } from "./stand-in";
import { screenshot, until } from "./support";

type Canvas = HTMLCanvasElement & { renderer: Renderer };

setUp(() => {});

const RIGHT_TO_LEFT = "\u0634\u0628\u0643\u0629";

/** The picture of a fabric with three TAPs to one monitor, at its last switch. */
async function show(
  fabric: Topology,
  query = "",
  size = { width: 1280, height: 800 },
): Promise<Page> {
  const last = fabric.switches.at(-1)!.switch;
  const monitor = { switch: last, port: 10, name: "watch0" };
  controller.serve(fabric);
  const reports = ["web", "a-rather-long-name-of-a-policy", RIGHT_TO_LEFT].map((name) =>
    report(name, monitor),
  );
  for (const one of reports) controller.answers.set(`GET /policies/${one.policy.name}`, one);
  controller.answers.set("GET /policies", list(reports));
  const page = await browser.page(`${controller.url}/#/topology${query}`);
  await page.setViewportSize(size);
  await page.locator("canvas[data-final=true]").waitFor();
  await until("TAPs and hosts are in the picture", () =>
    page.evaluate(() => {
      const { scene, hasDetail } = (document.querySelector("canvas") as Canvas).renderer;
      return scene.ways.length === 3 && (scene.spots.length > 0 || !hasDetail);
    }),
  );
  return page;
}

const report = (name: string, monitor: { switch: string; port: number; name: string }) => ({
  policy: { name, monitor: "watch0", "src-ip": "10.0.3.1" },
  state: { is: "active" },
  monitor,
  matched: { packets: 0, bytes: 0 },
  copied: [],
  adds_up: true,
  is_complete: true,
  path: [{ monitor, hops: [{ switch: "0x1" }, { switch: monitor.switch }] }],
});

/** The labels drawn at `scale` times the scale that shows everything. */
function drawn(page: Page, scale: number) {
  return page.evaluate(async (scale) => {
    const { renderer } = document.querySelector("canvas") as Canvas;
    renderer.fit();
    renderer.camera = { ...renderer.camera, scale: renderer.camera.scale * scale };
    renderer.moved();
    // The first frame draws; after the second one the result can be read.
    for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
    const words = renderer.placed.map(({ words, box, rank }) => ({ words, box, rank }));
    return { words, solid: renderer.solid };
  }, scale);
}

type Drawn = Awaited<ReturnType<typeof drawn>>;
type Box = Drawn["solid"][number];

const overlap = (a: Box, b: Box) =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

function assertApart({ words, solid }: Drawn, what: string): void {
  for (const [i, label] of words.entries()) {
    const other = words.slice(i + 1).find((one) => overlap(label.box, one.box));
    assert.equal(other?.words, undefined, `${what}: ${label.words} covers it`);
    assert.ok(!solid.some((box) => overlap(label.box, box)), `${what}: ${label.words} on a node`);
  }
}

const FABRICS: [string, () => Topology][] = [
  ["leaf-spine 2x4 with hosts", () => leafSpine(2, 4, 4)],
  ["leaf-spine 8x32", () => leafSpine(8, 32, 12)],
  ["a mesh of 40", () => mesh(40)],
  ["a ring of 40", () => ring(40, 6)],
];

for (const [name, fabric] of FABRICS) {
  test(`${name}: no words cover others, or nodes, at any scale`, options, async () => {
    const page = await show(fabric());
    for (const scale of [0.5, 1, 1.6, 2.5, 4]) {
      const seen = await drawn(page, scale);
      await screenshot(page, `labels-${name.replace(/\W+/g, "-")}-${scale}`, "all");
      assertApart(seen, `scale ${scale}`);
    }
    const { words } = await drawn(page, 1);
    for (const word of ["watch0", "web: "])
      assert.ok(
        words.some((label) => label.words.startsWith(word)),
        `${word} has its words`,
      );
    await page.close();
  });
}

test("what is selected has its name, before all others", options, async () => {
  const page = await show(leafSpine(8, 32, 12), "?switch=0x20");
  // At this scale there is no room for most names.
  const { words } = await drawn(page, 0.5);
  assert.deepEqual([words[0]?.words, words[0]?.rank], ["0x20", "chosen"]);
  await page.close();
});

test("on a telephone no words lie behind the legend or the buttons", options, async () => {
  const page = await show(leafSpine(2, 4, 3), "", { width: 390, height: 800 });
  for (const scale of [1, 1.6]) {
    const seen = await drawn(page, scale);
    await screenshot(page, `labels-telephone-${scale}`, "all");
    assertApart(seen, `scale ${scale}`);
    const over = await page.evaluate(() => {
      const { left, top } = document.querySelector("canvas")!.getBoundingClientRect();
      return [...document.querySelectorAll(".legend, .zoom")].map((one) => {
        const box = one.getBoundingClientRect();
        return {
          left: box.left - left,
          top: box.top - top,
          right: box.right - left,
          bottom: box.bottom - top,
        };
      });
    });
    for (const { words, box } of seen.words)
      assert.ok(!over.some((one) => overlap(one, box)), `${words} is hidden at ${scale}`);
    if (scale === 1) {
      const isOver = seen.solid.some((box) => over.some((one) => overlap(one, box)));
      assert.ok(!isOver, "all nodes and hosts are in sight");
      assert.equal(seen.solid.length, 6 + 12 + 1, "hosts are drawn, and the monitor");
      assert.ok(!seen.words.some(({ words }) => words === "0x1"), "names are in their boxes");
    }
  }
  await page.close();
});

test("a name from right to left does not turn around the rate behind it", options, async () => {
  const page = await show(leafSpine(2, 4, 3));
  const { words } = await drawn(page, 1);
  const [label] = words.filter((one) => one.words.includes(RIGHT_TO_LEFT));
  assert.ok(label?.words.startsWith(`\u2068${RIGHT_TO_LEFT}\u2069: `), label?.words);
  await page.close();
});
