// Policies with problems among hundreds without: found, counted and drawn, whatever their names.
import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { test } from "node:test";
import type { PolicyReport } from "../../src/api/types";
import type { Renderer } from "../../src/graph/renderer";
import { hasProblem } from "../../src/model/policy";
import { report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { assertAccessible, isRed, screenshot, until } from "./support";

type Canvas = HTMLCanvasElement & { renderer: Renderer };

setUp();

/** Policies by name, in pages of at most 100, so that no request gets all of them. */
function serve(reports: PolicyReport[]): void {
  for (const one of reports) controller.answers.set(`GET /policies/${one.policy.name}`, one);
  controller.answers.set("GET /policies", ({ url }: IncomingMessage) => {
    const asked = new URL(url!, "http://x").searchParams;
    const limit = Math.min(Number(asked.get("limit") ?? 100), 100);
    const q = asked.get("q") ?? "";
    const isWanted = asked.get("has_problem") === "true" ? hasProblem : () => true;
    const found = reports.filter((one) => one.policy.name.includes(q) && isWanted(one));
    const from = found.findIndex(({ policy }) => policy.name === asked.get("cursor")) + 1;
    const items = found.slice(from, from + limit);
    const next = from + limit < found.length ? items.at(-1)!.policy.name : null;
    return { items, next, total: found.length };
  });
}

const named = (i: number): string => `p${String(i).padStart(3, "0")}`;

/** 300 policies: one near the end does not add up, and one has failed. */
const many = (): PolicyReport[] =>
  Array.from({ length: 300 }, (_, i) => {
    const change = i === 280 ? { adds_up: false } : {};
    const state = i === 140 ? { is: "failed", reason: "the group table is full" } : undefined;
    return report(named(i), { ...change, ...(state && { state }) }) as unknown as PolicyReport;
  });

test("policies with problems are found among hundreds", options, async () => {
  serve(many());
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("tr[data-policy=p000]").waitFor();
  await page.getByLabel("Which policies").selectOption("With problems");
  await page.locator("tr[data-policy=p280]").waitFor();
  const names = () => page.locator("tbody th a").allInnerTexts();
  assert.deepEqual(await names(), ["p140", "p280"]);
  await page.getByText("2 policies with problems").waitFor();
  const why = (name: string, words: string) =>
    page.locator(`tr[data-policy=${name}]`).getByText(words).waitFor();
  await why("p140", "the group table is full");
  await why("p280", "are neither delivered, nor in flight, nor dropped");
  await assertAccessible(page, "policies with problems");
  await page.getByLabel("Search policies").fill("280");
  await page.locator("tr[data-policy=p140]").waitFor({ state: "detached" });
  assert.deepEqual(await names(), ["p280"]);
  await page.reload();
  await page.locator("tr[data-policy=p140]").waitFor();
  await page.getByLabel("Which policies").selectOption("All policies");
  await page.locator("tr[data-policy=p000]").waitFor();
  await page.close();
});

test("without problems that is what the list says", options, async () => {
  serve(many().filter(({ adds_up, state }) => adds_up && state.is === "active"));
  const page = await browser.page(`${controller.url}/#/policies?show=problems`);
  await page.getByText("No policy has a problem").waitFor();
  await page.close();
});

test(
  "ledgers that do not add up are told in every view, with the way to them",
  options,
  async () => {
    serve(many());
    const page = await browser.page(`${controller.url}/#/events`);
    await page.locator("[data-liveness=live]").waitFor();
    const at = new Date().toISOString();
    controller.send("tick", { id: 1, at, policies_that_do_not_add_up: 1 });
    await page.getByRole("link", { name: "1 policy does not add up" }).click();
    await page.locator("tr[data-policy=p280]").waitFor();
    controller.send("tick", { id: 2, at, policies_that_do_not_add_up: 0 });
    await page.getByText("1 policy does not add up").waitFor({ state: "detached" });
    await page.close();
  },
);

test(
  "the picture has TAPs with problems before others, and says what is left out",
  options,
  async () => {
    serve(many());
    const page = await browser.page(`${controller.url}/#/topology`);
    await page.locator("[data-tap=p280]").waitFor();
    const drawn = () =>
      page.evaluate(() =>
        (document.querySelector("canvas") as Canvas).renderer.scene.ways.map((way) => [
          way.report.policy.name,
          way.tone,
        ]),
      );
    await page.locator("canvas[data-final=true]").waitFor();
    await page.getByText("25 of 300 TAPs, those with problems first").waitFor();
    await page.waitForFunction(() =>
      (document.querySelector("canvas") as Canvas).renderer.scene.ways.some(
        (way) => way.report.policy.name === "p280",
      ),
    );
    const ways = await drawn();
    assert.equal(ways.length, 25);
    assert.deepEqual(ways.slice(0, 3), [
      ["p140", "bad"],
      ["p280", "bad"],
      ["p000", "wait"],
    ]);
    await until("those with problems lie on top", () => isRed(page));
    const listed = page.locator("[data-tap]");
    assert.equal(await listed.first().getAttribute("data-tap"), "p140");
    await assertAccessible(page, "many TAPs");
    await screenshot(page, "topology-many-taps", "all");
    await page.getByRole("link", { name: "2 have problems" }).click();
    await page.getByText("2 policies with problems").waitFor();
    await page.close();
  },
);

test("policies are sorted by what their ledgers say", options, async () => {
  serve(many().slice(270, 290));
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("tr[data-policy=p280]").waitFor();
  await page.getByRole("button", { name: "Ledger" }).click();
  assert.equal(await page.locator("tbody th a").first().innerText(), "p280");
  await page.close();
});
