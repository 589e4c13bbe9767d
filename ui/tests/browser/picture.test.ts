// The picture of the fabric: by keyboard, mouse and touch, and in windows of any size.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import type { Renderer } from "../../src/graph/renderer";
import { leafSpine } from "../unit/fabrics";
import { browser, controller, options, setUp } from "./stage";
import { until } from "./support";

type Canvas = HTMLCanvasElement & { renderer: Renderer };

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

test("a picture that the user has not moved shows everything at any size", options, async () => {
  const page = await complete();
  for (const [width, height] of [
    [390, 844],
    [1440, 900],
    [830, 500],
  ] as const) {
    await page.setViewportSize({ width, height });
    await until(
      `everything is in sight, ${width}x${height}`,
      async () => (await unseen(page)) === 0,
    );
  }
  await page.getByRole("button", { name: "Zoom in" }).click();
  const scale = () =>
    page.evaluate(() => (document.querySelector("canvas") as Canvas).renderer.camera.scale);
  const before = await scale();
  await page.setViewportSize({ width: 1280, height: 800 });
  await until("the picture has grown", async () => (await screenWidth(page)) > 800);
  assert.equal(await scale(), before, "the scale that the user chose stays");
  await page.close();
});

test(
  "a picture of another size is drawn at once, without a blank one between",
  options,
  async () => {
    const page = await complete();
    const ink = await page.evaluate(
      () =>
        new Promise<number[]>((done) => {
          const canvas = document.querySelector("canvas") as Canvas;
          const found: number[] = [];
          // Told after the picture's own observer, before the browser shows the frame.
          new ResizeObserver(() => {
            const { data } = canvas
              .getContext("2d")!
              .getImageData(0, 0, canvas.width, canvas.height);
            found.push(data.reduce((sum, value) => sum + Number(value > 0), 0));
            if (found.length === 3) done(found);
            else canvas.parentElement!.style.height = `${500 + 40 * found.length}px`;
          }).observe(canvas);
        }),
    );
    assert.ok(
      ink.every((count) => count > 0),
      `coloured bytes after each change: ${ink.join()}`,
    );
    await page.close();
  },
);

test("a picture without anything in sight says how to get back", options, async () => {
  const page = await complete();
  const hint = page.getByText("Nothing of the fabric is here");
  const box = (await page.locator("canvas").boundingBox())!;
  const [left, middle] = [box.x + 12, box.y + box.height / 2];
  for (let turn = 0; turn < 3; turn++) {
    await page.mouse.move(left, middle);
    await page.mouse.down();
    await page.mouse.move(left + box.width - 24, middle);
    await page.mouse.up();
  }
  await hint.waitFor();
  await page.getByRole("button", { name: "All", exact: true }).click();
  await hint.waitFor({ state: "detached" });
  assert.equal(await unseen(page), 0);
  await page.close();
});

test("two fingers zoom where they are, and one moves the picture", options, async () => {
  const page = await complete();
  const touch = await page.context().newCDPSession(page);
  await touch.send("Emulation.setTouchEmulationEnabled", { enabled: true, maxTouchPoints: 2 });
  const box = (await page.locator("canvas").boundingBox())!;
  const middle = { x: Math.round(box.x + box.width / 2), y: Math.round(box.y + box.height / 3) };
  const fingers = (type: "touchStart" | "touchMove" | "touchEnd", ...xs: number[]) =>
    touch.send("Input.dispatchTouchEvent", {
      type,
      touchPoints: xs.map((x, id) => ({ x: middle.x + x, y: middle.y, id })),
    });
  const camera = () =>
    page.evaluate(() => ({ ...(document.querySelector("canvas") as Canvas).renderer.camera }));
  const before = await camera();
  await fingers("touchStart", -50, 50);
  await fingers("touchMove", -100, 100);
  await fingers("touchEnd");
  await until("it is twice as large", async () => {
    const { scale } = await camera();
    return Math.abs(scale / before.scale - 2) < 0.01;
  });
  const zoomed = await camera();
  assert.ok(Math.abs(zoomed.x - before.x) < 1, "what is between the fingers stays there");
  await fingers("touchStart", 0);
  await fingers("touchMove", 60);
  await fingers("touchEnd");
  await until("it has moved", async () => {
    const { x, scale } = await camera();
    return Math.abs(zoomed.x - x - 60 / scale) < 1;
  });
  assert.equal(await page.getByLabel("Selected").count(), 0, "nothing was clicked");
  await page.close();
});

test("a finger selects a link that it nearly touches", options, async () => {
  const page = await complete();
  const touch = await page.context().newCDPSession(page);
  await touch.send("Emulation.setTouchEmulationEnabled", { enabled: true, maxTouchPoints: 1 });
  // Not on a link for a mouse, but within reach of a finger.
  const at = (await placeOf(page, "link", 6))!;
  await touch.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [at] });
  await touch.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
  await page.getByRole("heading", { name: "Link", exact: true }).waitFor();
  await page.close();
});

test("a selected link of a large fabric has the hosts at its ends", options, async () => {
  // More hosts than are fetched at once, and too far away to be drawn.
  controller.serve(leafSpine(8, 40, 12));
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.getByRole("button", { name: "Links", exact: true }).click();
  await page.getByLabel("Search links").fill("0x30/");
  await page.getByRole("button", { name: /^0x1\/\d+ – 0x30\/1/ }).click();
  await page.getByRole("link", { name: "10.0.48.1 ↔ any" }).waitFor();
  await page.close();
});

test("the number of links is that between the groups, if there are groups", options, async () => {
  controller.serve(leafSpine(8, 40, 12));
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.getByLabel("Detail").selectOption("40");
  await page.getByText(/^48 switches in \d+ groups, \d+ links between them, 480 hosts$/).waitFor();
  await page.close();
});

test("what is selected is not said to be gone before it is known", options, async () => {
  let release = () => {};
  const gate = new Promise<void>((done) => (release = done));
  for (const path of ["/topology", "/policies"]) {
    const usual = controller.answers.get(`GET ${path}`) as unknown;
    controller.answers.set(`GET ${path}`, async () => {
      await gate;
      return typeof usual === "function" ? usual() : usual;
    });
  }
  const page = await browser.page(`${controller.url}/#/topology?tap=db`);
  const selected = page.getByLabel("Selected");
  await selected.getByText("Loading …").waitFor();
  await page.goto(`${controller.url}/#/topology?switch=0x4`);
  await selected.getByText("Loading …").waitFor();
  assert.equal(await page.getByText(/has ended|is not in the picture/).count(), 0);
  release();
  await page.getByRole("heading", { name: "Switch 0x4" }).waitFor();
  await page.close();
});

/** A page with the whole small fabric in its picture. */
async function complete(): Promise<Page> {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.waitForFunction(
    () => (document.querySelector("canvas") as Canvas).renderer.scene.spots.length > 0,
  );
  return page;
}

/** The number of nodes and hosts outside the picture. */
const unseen = (page: Page): Promise<number> =>
  page.evaluate(() => {
    const canvas = document.querySelector("canvas") as Canvas;
    const { camera, screen, scene } = canvas.renderer;
    const isOut = (offset: number, size: number) => Math.abs(offset * camera.scale) > size / 2;
    const isStale = screen.x !== canvas.clientWidth || screen.y !== canvas.clientHeight;
    const all = [...scene.nodes, ...scene.spots];
    const out = all.filter(
      (p) => isOut(p.x - camera.x, screen.x) || isOut(p.y - camera.y, screen.y),
    );
    return isStale ? all.length : out.length;
  });

const screenWidth = (page: Page): Promise<number> =>
  page.evaluate(() => (document.querySelector("canvas") as Canvas).renderer.screen.x);

/** Clicks on the first object of a kind, where it is drawn. */
async function clickOn(page: Page, kind: string): Promise<void> {
  const at = await placeOf(page, kind, 0);
  assert.ok(at, `no ${kind} is in the picture`);
  await page.mouse.click(at.x, at.y);
}

/** A place of the window that hits an object of a kind only with `slack` pixels more than usual. */
const placeOf = (page: Page, kind: string, slack: number) =>
  page.evaluate(
    ([kind, slack]) => {
      const canvas = document.querySelector("canvas") as Canvas;
      const { width, height, left, top } = canvas.getBoundingClientRect();
      for (let y = 60; y < height - 60; y += 3) {
        for (let x = 20; x < width - 20; x += 3) {
          const isOther = slack > 0 && canvas.renderer.hit({ x, y }) !== undefined;
          if (!isOther && canvas.renderer.hit({ x, y }, slack)?.kind === kind)
            return { x: left + x, y: top + y };
        }
      }
      return undefined;
    },
    [kind, slack] as const,
  );
