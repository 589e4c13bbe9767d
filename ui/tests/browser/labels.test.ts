// The words in the picture: none covers another one, or a node, on fabrics small and dense; and what
// matters has its words there.
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

/** The picture of a fabric with two TAPs to one monitor, which is at its last switch. */
async function show(fabric: Topology, query = ""): Promise<Page> {
  const last = fabric.switches.at(-1)!.switch;
  const monitor = { switch: last, port: 10, name: "watch0" };
  controller.serve(fabric);
  const reports = ["web", "a-rather-long-name-of-a-policy"].map((name) => report(name, monitor));
  for (const one of reports) controller.answers.set(`GET /policies/${one.policy.name}`, one);
  controller.answers.set("GET /policies", list(reports));
  const page = await browser.page(`${controller.url}/#/topology${query}`);
  await page.locator("canvas[data-final=true]").waitFor();
  await until("TAPs and hosts are in the picture", () =>
    page.evaluate(() => {
      const { scene, hasDetail } = (document.querySelector("canvas") as Canvas).renderer;
      return scene.ways.length === 2 && (scene.spots.length > 0 || !hasDetail);
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

/** What was drawn with the camera at `scale` times what shows all. */
function drawn(page: Page, scale: number) {
  return page.evaluate(async (scale) => {
    const { renderer } = document.querySelector("canvas") as Canvas;
    renderer.fit();
    renderer.camera = { ...renderer.camera, scale: renderer.camera.scale * scale };
    renderer.moved();
    // Drawn with the next frame; seen to be drawn in the one after that.
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
  // So far away that there is no room for most names.
  const { words } = await drawn(page, 0.5);
  assert.deepEqual([words[0]?.words, words[0]?.rank], ["0x20", "chosen"]);
  await page.close();
});
