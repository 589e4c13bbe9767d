// Navigation between views: keyboard and screen reader focus afterwards, and the URL of each view.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { DRY_RUN, report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { list } from "./stand-in";
import { until } from "./support";

setUp();

/** The accessible name of the focused element, or its tag. */
const focused = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const { activeElement: one } = document;
    return one?.getAttribute("aria-label") || one?.id || one?.textContent || "nothing";
  });

test("another view begins at its top, and has the focus", options, async () => {
  const many = Array.from({ length: 100 }, (_, i) => report(`p${String(i).padStart(2, "0")}`));
  controller.answers.set("GET /policies", list(many));
  controller.answers.set("GET /policies/*", report("p99"));
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("tr[data-policy=p99]").scrollIntoViewIfNeeded();
  await page.locator("tr[data-policy=p99] a").first().press("Enter");
  await page.getByRole("heading", { name: "p99", exact: true }).waitFor();
  await until("the view has the focus", async () => (await focused(page)) === "main");
  assert.equal(await page.evaluate(() => scrollY), 0);
  await page.getByRole("main", { name: "p99" }).waitFor();
  await page.goto(`${controller.url}/#/new`);
  const current = page.getByRole("navigation").locator("[aria-current=page]");
  await current.getByText("Policies").waitFor();
  await page.close();
});

test(
  "a question that is answered gives the focus back, and nothing else happens",
  options,
  async () => {
    const page = await browser.page(`${controller.url}/#/policies`);
    const ask = page.getByRole("button", { name: "Delete web" });
    const dialog = page.getByRole("dialog");
    for (const answer of ["Escape", "Enter"]) {
      await ask.press("Enter");
      await dialog.getByRole("button", { name: "Cancel" }).press(answer);
      await dialog.waitFor({ state: "detached" });
      await until(
        `the focus is back after ${answer}`,
        async () => (await focused(page)) === "Delete web",
      );
    }
    await page.goto(`${controller.url}/#/policies/web`);
    await page.getByRole("button", { name: "Delete" }).press("Enter");
    await dialog.getByRole("button", { name: "Cancel" }).press("Enter");
    await dialog.waitFor({ state: "detached" });
    await until("the focus is back", async () => (await focused(page)) === "Delete");
    assert.match(page.url(), /policies\/web$/, "who cancels stays");
    controller.answers.set("DELETE /policies/web", DRY_RUN);
    await page.getByRole("button", { name: "Delete" }).press("Enter");
    await dialog.getByRole("button", { name: "Delete" }).press("Enter");
    await page.getByRole("heading", { name: "Policies" }).waitFor();
    await until("the view has the focus", async () => (await focused(page)) === "main");
    await page.close();
  },
);

test("the picture follows its address", options, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.goto(`${controller.url}/#/topology?tap=db`);
  await page.getByRole("heading", { name: "TAP db" }).waitFor();
  await page.goto(`${controller.url}/#/topology?switch=0x4`);
  await page.getByRole("heading", { name: "Switch 0x4" }).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "TAP db" }).waitFor();
  await page.close();
});
