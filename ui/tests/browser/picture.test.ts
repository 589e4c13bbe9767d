// The picture of the fabric, by keyboard and by mouse.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { browser, controller, options, setUp } from "./stage";

setUp();

test("the picture is walked by keyboard, and tells where one is", options, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.locator("canvas").focus();
  await page.keyboard.press("ArrowRight");
  const spoken = page.locator(".canvas-box [aria-live=polite]");
  await spoken.getByText("switch 0x1, connected").waitFor({ state: "attached" });
  await page.keyboard.press("ArrowDown");
  await spoken
    .getByText(/switch 0x[3-6], connected, 3 hosts, 2 links/)
    .waitFor({ state: "attached" });
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^Switch 0x/ }).waitFor();
  await page.close();
});

test("a click on a host, a link or a TAP offers what can be done with it", options, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.waitForFunction(
    () =>
      (
        document.querySelector("canvas") as HTMLCanvasElement & {
          renderer: { scene: { spots: unknown[] } };
        }
      ).renderer.scene.spots.length > 0,
  );
  await clickOn(page, "host");
  await page.getByRole("link", { name: "Tap this host" }).waitFor();
  await clickOn(page, "link");
  await page.getByRole("heading", { name: "Link", exact: true }).waitFor();
  await page.locator("[data-tap=web]").click();
  await page.getByRole("heading", { name: "TAP web" }).waitFor();
  await clickOn(page, "host");
  await page.getByRole("link", { name: "Tap this host" }).click();
  assert.match(await page.getByLabel("Source MAC").inputValue(), /^02:/);
  assert.equal(await page.getByLabel("Source IP").inputValue(), "");
  await page.close();
});

/** Clicks on the first object of a kind, where it is drawn. */
async function clickOn(page: Page, kind: string): Promise<void> {
  const at = await page.evaluate((kind) => {
    const canvas = document.querySelector("canvas")! as HTMLCanvasElement & {
      renderer: { hit(p: { x: number; y: number }): { kind: string } | undefined };
    };
    const { width, height, left, top } = canvas.getBoundingClientRect();
    for (let y = 60; y < height - 60; y += 3) {
      for (let x = 20; x < width - 20; x += 3) {
        if (canvas.renderer.hit({ x, y })?.kind === kind) return { x: left + x, y: top + y };
      }
    }
    return undefined;
  }, kind);
  assert.ok(at, `no ${kind} is in the picture`);
  await page.mouse.click(at.x, at.y);
}
