// Numbers of requests and drawings while a large fabric is busy, and that the page stays correct.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import type { Renderer } from "../../src/graph/renderer";
import { big, leafSpine } from "../unit/fabrics";
import { report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { hosts, list } from "./stand-in";
import { until } from "./support";

type Canvas = HTMLCanvasElement & { renderer: Renderer };

setUp((controller) => controller.serve(big()));

/** Zooms in on one switch until its hosts are drawn; a smaller `scale` zooms out again. */
const lookAt = (page: Page, id: string, scale: number): Promise<void> =>
  page.evaluate(
    ([id, scale]) => {
      const { renderer } = document.querySelector("canvas") as Canvas;
      renderer.canvasMoved();
      renderer.centre(renderer.scene.nodes[renderer.scene.index.get(id)!]!, scale);
    },
    [id, scale] as const,
  );

const addresses = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const { renderer } = document.querySelector("canvas") as Canvas;
    return renderer.scene.spots.flatMap((spot) => spot.host.addresses);
  });

test(
  "hosts of a large fabric are seen to come and go, and stay chosen from afar",
  options,
  async () => {
    const id = "0x40";
    const page = await browser.page(`${controller.url}/#/topology`);
    await page.locator("canvas[data-final=true]").waitFor();
    await page.locator("[data-liveness=live]").waitFor();
    await lookAt(page, id, 1.2);
    const [first] = hosts(id, 1);
    const has = async (address: string) => (await addresses(page)).includes(address);
    await until("its hosts are seen", () => has(first!.addresses[0]!));
    const come = { ...first!, mac: "02:00:00:00:00:99", addresses: ["192.0.2.9"] };
    controller.answers.set("GET /hosts", list([come]));
    const at_port = { switch: id, port: 10, name: "t10" };
    controller.send("host", { id: 1, what: "seen", mac: come.mac, vlan: null, at_port });
    await until("who came is seen", () => has("192.0.2.9"));
    assert.equal(await has(first!.addresses[0]!), false, "who left is not");
    const at = await page.evaluate((id) => {
      const canvas = document.querySelector("canvas") as Canvas;
      const { camera, scene, screen } = canvas.renderer;
      const spot = scene.spots.find((one) => one.host.switch === id)!;
      const { left, top } = canvas.getBoundingClientRect();
      return {
        x: left + screen.x / 2 + (spot.x - camera.x) * camera.scale,
        y: top + screen.y / 2 + (spot.y - camera.y) * camera.scale,
      };
    }, id);
    await page.mouse.click(at.x, at.y);
    await page.getByRole("heading", { name: "Host 192.0.2.9" }).waitFor();
    await lookAt(page, id, 0.1);
    await page.waitForTimeout(500);
    await page.getByRole("heading", { name: "Host 192.0.2.9" }).waitFor();
    await page.close();
  },
);

test("a large fabric is asked for and drawn no more often than it changes", options, async () => {
  const asked = new Map<string, number>();
  const counted = (name: string, answer: unknown) => () => {
    asked.set(name, (asked.get(name) ?? 0) + 1);
    return answer;
  };
  const taps = Array.from({ length: 25 }, (_, i) => report(`p${i}`, { path: undefined }));
  controller.answers.set("GET /policies", counted("policies", list(taps)));
  controller.answers.set("GET /policies/*", counted("one", report("p1")));
  controller.answers.set("GET /topology", counted("topology", big()));
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.locator("[data-liveness=live]").waitFor();
  await page.waitForTimeout(1000);
  const draws = page.evaluate(
    (ms) =>
      new Promise<number>((done) => {
        const { renderer } = document.querySelector("canvas") as Canvas;
        let count = 0;
        const show = renderer.show.bind(renderer);
        renderer.show = (scene) => (count++, show(scene));
        setTimeout(() => done(count), ms);
      }),
    MEASURED_MS,
  );
  asked.clear();
  const at_port = { switch: "0x1", port: 2, name: "p" };
  const event = { what: "seen", mac: "02:00:00:00:00:07", vlan: null, at_port };
  const timer = setInterval(() => controller.send("host", { id: 1, ...event }), 50);
  // Policies are fetched every second, their paths every 4 s, the fabric every 3 s.
  const shown = await draws;
  clearInterval(timer);
  console.log(
    `a busy large fabric, 6 s: shown ${shown} times, asked ${JSON.stringify([...asked])}`,
  );
  assert.ok(shown <= 14, `shown ${shown} times`);
  assert.ok(asked.get("topology")! <= 4, `topology ${asked.get("topology")} times`);
  await page.close();
});

test("a list of events that come fast is not drawn for each of them", options, async () => {
  const page = await browser.page(`${controller.url}/#/events`);
  await page.locator("[data-liveness=live]").waitFor();
  await page.evaluate(() => {
    const changes = { count: 0 };
    (window as unknown as { changes: typeof changes }).changes = changes;
    new MutationObserver(() => changes.count++).observe(document.querySelector("main")!, {
      childList: true,
      subtree: true,
    });
  });
  for (let id = 1; id <= 200; id++) {
    controller.send("switch", { id, switch: `0x${id}`, is_connected: false });
    await new Promise((go) => setTimeout(go, 5));
  }
  await page.getByText("0x200 is lost").waitFor();
  const first = await page.locator("tbody tr").first().innerText();
  assert.match(first, /0x200 is lost/, "the newest is the first");
  assert.equal(await page.locator("tbody tr").count(), 200);
  const count = await page.evaluate(
    () => (window as unknown as { changes: { count: number } }).changes.count,
  );
  assert.ok(count <= 20, `drawn ${count} times`);
  await page.close();
});

test("copies move where a picture costs little, and nowhere else", options, async () => {
  const monitor = { switch: "0x6", port: 13, name: "watch0" };
  const hops = ["0x1", "0x6"].map((id) => ({ switch: id }));
  const tap = report("web", { monitor, path: [{ monitor, hops }] });
  for (const [topology, motion, moves] of [
    [leafSpine(2, 4, 3), "no-preference", true],
    [leafSpine(2, 4, 3), "reduce", false],
    [big(), "no-preference", false],
  ] as const) {
    controller.serve(topology);
    controller.answers.set("GET /policies", list([tap]));
    const page = await browser.page("about:blank");
    await page.emulateMedia({ reducedMotion: motion });
    await page.goto(`${controller.url}/#/topology`);
    await page.locator("canvas[data-final=true]").waitFor();
    await page.locator("[data-tap=web]").waitFor();
    const draws = await page.evaluate(
      () =>
        new Promise<number>((done) => {
          const { renderer } = document.querySelector("canvas") as Canvas;
          let count = 0;
          const draw = renderer.draw.bind(renderer);
          renderer.draw = () => (count++, draw());
          setTimeout(() => done(count), 2000);
        }),
    );
    const what = `${topology.switches.length} switches, ${motion}: ${draws} draws in 2 s`;
    assert.equal(draws > 15, moves, what);
    await page.close();
  }
});

const MEASURED_MS = 6000;
