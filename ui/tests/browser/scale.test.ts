// The picture of a large fabric: complete, drawn at once, and smooth.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import type { Renderer } from "../../src/graph/renderer";
import { big } from "../unit/fabrics";
import { StandIn } from "./stand-in";
import { Browser, noBrowser, screenshot, until } from "./support";

let controller: StandIn;
let browser: Browser;
type Canvas = HTMLCanvasElement & { renderer: Renderer };

before(async () => {
  if (noBrowser) return;
  controller = await StandIn.start();
  controller.serve(big());
  browser = await Browser.open();
});
after(async () => {
  await browser?.close();
  await controller?.stop();
});

test("1,000 switches and 10,000 hosts are drawn", { skip: noBrowser }, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  const size = await page.locator("[data-what=size]").innerText();
  assert.match(size, /1,000 switches, .* links, 10,000 hosts/);
  const times = await page.evaluate(() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0]!.startTime,
    fabric: performance.getEntriesByName("fabric drawn")[0]!.startTime,
  }));
  const scale = await page.evaluate(
    () => (document.querySelector("canvas") as Canvas).renderer.camera.scale,
  );
  console.log(
    `page with 1,000 switches and 10,000 hosts: first paint ${times.paint.toFixed(0)} ms, ` +
      `fabric drawn ${times.fabric.toFixed(0)} ms`,
  );
  for (const [what, factor] of [
    ["all of it", 1],
    ["names of switches", 0.31 / scale],
    ["cards and hosts", 1.2 / scale],
  ] as const) {
    const { gaps, words } = await pan(page, factor);
    const at = (share: number) => gaps[Math.floor(gaps.length * share)]!.toFixed(0);
    console.log(
      `page with 1,000 switches and 10,000 hosts: ${what}: moved, a frame every ${at(0.5)} ms ` +
        `(p90 ${at(0.9)}), ${words} words beside things`,
    );
  }
  await page.getByRole("button", { name: "All", exact: true }).click();
  await screenshot(page, "topology-large");
  await page.close();
});

/**
 * Times between 60 frames while the camera moves, at `factor` times the scale that shows everything.
 * They include what the browser does with the canvas, which is most of it without a GPU.
 */
async function pan(page: Page, factor: number): Promise<{ gaps: number[]; words: number }> {
  await page.evaluate((factor) => {
    const { renderer } = document.querySelector("canvas") as Canvas;
    renderer.fit();
    // Otherwise the page would show everything again when hosts arrive.
    renderer.canvasMoved();
    const rim = renderer.scene.nodes.at(-1)!;
    if (factor !== 1) renderer.centre(rim, renderer.camera.scale * factor);
  }, factor);
  await until("hosts are in the picture, where it is near enough", () =>
    page.evaluate(() => {
      const { renderer } = document.querySelector("canvas") as Canvas;
      return !renderer.hasDetail || renderer.scene.spots.length > 0;
    }),
  );
  return page.evaluate(async () => {
    const { renderer } = document.querySelector("canvas") as Canvas;
    const gaps: number[] = [];
    const next = () => new Promise<number>(requestAnimationFrame);
    let [words, last] = [0, await next()];
    for (let i = 0; i < 60; i++) {
      renderer.camera = { ...renderer.camera, x: renderer.camera.x + (i % 2 ? 5 : -5) };
      renderer.moved();
      const now = await next();
      gaps.push(now - last);
      last = now;
      words = Math.max(words, renderer.placed.length);
    }
    return { gaps: gaps.sort((a, b) => a - b), words };
  });
}

test("near enough, hosts are asked for and seen", { skip: noBrowser }, async () => {
  const page = await browser.page(`${controller.url}/#/topology?switch=0x40`);
  await page.locator("canvas[data-final=true]").waitFor();
  await until("hosts are in the picture", () =>
    page.evaluate(() => {
      const { renderer } = document.querySelector("canvas") as Canvas;
      return renderer.scene.spots.length > 0 && renderer.hasDetail;
    }),
  );
  await screenshot(page, "topology-near-light", "all");
  await page.close();
});

test("switches are joined to groups, and a group is looked into", { skip: noBrowser }, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.getByLabel("Detail").selectOption("40");
  const nodes = () =>
    page.evaluate(() => (document.querySelector("canvas") as Canvas).renderer.scene.nodes.length);
  await until("there are groups", async () => (await nodes()) <= 40 && (await nodes()) > 0);
  await screenshot(page, "topology-groups-light", "all");
  await page.getByRole("button", { name: "Switches", exact: true }).click();
  await page.locator("[data-node]").first().click();
  await page.getByRole("button", { name: "Open the group" }).click();
  await page.getByRole("button", { name: "Back to the whole fabric" }).waitFor();
  const inside = await page.locator("[data-what=size]").innerText();
  assert.doesNotMatch(inside, /1,000 switches/);
  await page.close();
});
