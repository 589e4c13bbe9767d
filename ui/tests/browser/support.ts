// A browser for tests: Debian's Chromium with a fresh profile, in our network namespace.
import AxeBuilder from "axe-core";
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type BrowserContext, type Page, chromium } from "playwright-core";

export const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);

/** Why no browser can run here; `undefined` if one can. */
export const noBrowser: string | undefined = CHROMIUM
  ? undefined
  : "chromium is not installed (Debian: apt-get install chromium)";

/** A running browser. Collects errors that the page reports. */
export class Browser {
  readonly faults: string[] = [];

  private constructor(
    private readonly context: BrowserContext,
    private readonly profile: string,
  ) {}

  static async open(scheme: "light" | "dark" = "light"): Promise<Browser> {
    const profile = mkdtempSync(join(tmpdir(), "page-"));
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: CHROMIUM,
      headless: true,
      args: FLAGS,
      colorScheme: scheme,
      viewport: { width: 1280, height: 800 },
      reducedMotion: "reduce",
    });
    context.setDefaultTimeout(PATIENCE_MS);
    return new Browser(context, profile);
  }

  async page(url: string): Promise<Page> {
    const page = await this.context.newPage();
    page.on("pageerror", (error) => this.faults.push(`${error.stack ?? error}`));
    page.on("console", (message) => {
      // Error responses are expected: tests check how the page shows them.
      const isAnswer = /Failed to load resource|ERR_|EventSource/.test(message.text());
      if (message.type() === "error" && !isAnswer) this.faults.push(message.text());
    });
    await page.goto(url, { waitUntil: "commit" });
    return page;
  }

  async close(): Promise<void> {
    await this.context.close();
    rmSync(this.profile, { recursive: true, force: true });
    assert.deepEqual(this.faults, [], "the page says no errors");
  }
}

/** Asserts that axe-core finds no violation of WCAG 2.2 A and AA. */
export async function assertAccessible(page: Page, what: string): Promise<void> {
  // The content security policy blocks injected scripts, except those of the debugger.
  await page.evaluate(AxeBuilder.source);
  const violations = await page.evaluate(async () => {
    const axe = (window as unknown as { axe: typeof AxeBuilder }).axe;
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
    const { violations } = await axe.run({ runOnly: tags });
    return violations.map(
      ({ id, help, nodes }) =>
        `${id}: ${help}: ${nodes.map((n) => `${n.html} ${n.any.map((a) => a.message)}`).join(" | ")}`,
    );
  });
  assert.deepEqual(violations, [], what);
}

/** Whether the picture has pixels in the colour of problems. */
export async function isRed(page: Page): Promise<boolean> {
  return page.evaluate(() => {
    const canvas = document.querySelector("canvas")!;
    const probe = document.createElement("canvas").getContext("2d")!;
    probe.fillStyle = getComputedStyle(canvas).getPropertyValue("--bad").trim();
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
    const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4) {
      if (data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255)
        return true;
    }
    return false;
  });
}

/** Polls `question` until it is true. */
export async function until(
  what: string,
  question: () => boolean | Promise<boolean>,
): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await question())) {
    if (Date.now() > deadline) throw new Error(`not in time: ${what}`);
    await new Promise((go) => setTimeout(go, 50));
  }
}

/**
 * Saves a screenshot to the folder TAPSWITCH_SCREENSHOTS, if set: those of the README, and below
 * `all` those of every view.
 */
export async function screenshot(page: Page, name: string, below = ""): Promise<void> {
  const asked = process.env.TAPSWITCH_SCREENSHOTS;
  if (!asked || (below && !process.env.TAPSWITCH_ALL_SCREENSHOTS)) return;
  // Tests run in `ui`, but the folder is relative to where the script was called.
  const folder = resolve("..", asked, below);
  mkdirSync(folder, { recursive: true });
  await page.mouse.move(0, 0);
  await page.waitForTimeout(250);
  // Limits the height: the start of a long list is enough.
  const size = await page.evaluate(() => {
    const { clientWidth, scrollHeight } = document.documentElement;
    return { width: clientWidth, height: scrollHeight };
  });
  const clip = { x: 0, y: 0, ...size, height: Math.min(size.height, MOST_HEIGHT) };
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true, clip });
}

/** Maximum height of a screenshot in pixels. */
const MOST_HEIGHT = 1300;
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
/** Upper limit for waiting; the time taken within it does not decide a test. */
export const PATIENCE_MS = 8_000;
