// The list of policies and the charts: searching, sorting, deleting.
import assert from "node:assert/strict";
import { test } from "node:test";
import { DRY_RUN, report, reports } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { Refusal, list } from "./stand-in";
import { assertAccessible, screenshot } from "./support";

setUp();

test("policies are searched, sorted, edited and deleted by keyboard", options, async () => {
  controller.answers.set("DELETE /policies/web", (request: { url?: string }) => {
    if (request.url!.includes("dry_run")) return DRY_RUN;
    controller.answers.set("GET /policies", list(reports().slice(1)));
    return report("web", { state: { is: "deleted" } });
  });
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("tr[data-policy=web]").waitFor();
  const names = () => page.locator("tbody th a").allInnerTexts();
  assert.deepEqual(await names(), ["db", "mail", "web"]);
  await page.getByRole("button", { name: "Policy", exact: false }).first().press("Enter");
  assert.deepEqual(await names(), ["web", "mail", "db"]);
  await page.getByRole("button", { name: "Delete web" }).press("Enter");
  await page.getByRole("dialog").getByText("Delete web?").waitFor();
  await page.getByRole("dialog").getByText("30 frame paths checked").waitFor();
  await assertAccessible(page, "dialog");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const sent = controller.commands.map((command) => command.what);
  assert.deepEqual(sent, ["DELETE /policies/web?dry_run=true"], "Escape deletes nothing");
  await page.getByRole("button", { name: "Delete web" }).press("Enter");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).press("Enter");
  await page.locator("tr[data-policy=web]").waitFor({ state: "detached" });
  await page.close();
});

test("what is not proved can be deleted all the same", options, async () => {
  const problem = "policy web: a frame would be lost at 0x1";
  controller.answers.set("DELETE /policies/web", (request: { url?: string }) => {
    if (request.url!.includes("dry_run"))
      return { ...DRY_RUN, proof: { is_proved: false, checked: 3, problems: [problem] } };
    if (request.url!.includes("force=true")) return report("web", { state: { is: "deleted" } });
    return new Refusal(409, { code: "not-proved", message: problem, field: null });
  });
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.getByRole("button", { name: "Delete web" }).click();
  await page.getByRole("dialog").getByText(problem).waitFor();
  await screenshot(page, "delete-not-proved", "all");
  await page.getByRole("button", { name: "Delete anyway" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(controller.commands.at(-1)?.what, "DELETE /policies/web?force=true");
  await page.close();
});

test("any of many policies has its chart", options, async () => {
  const names = Array.from({ length: 500 }, (_, i) => `p${i}`);
  controller.answers.set("GET /policies", (request: { url?: string }) => {
    const q = new URL(request.url!, "http://x").searchParams.get("q") ?? "";
    const found = names.filter((name) => name.includes(q));
    const items = found.slice(0, 100).map((name) => report(name));
    return { items, next: null, total: found.length };
  });
  controller.answers.set("GET /policies/p499/series", { interval_ms: 1000, points: [] });
  const page = await browser.page(`${controller.url}/#/charts`);
  await page.getByText("100 of 500 policies: search for others").waitFor();
  await page.getByLabel("Search policies").fill("p499");
  await page.locator("#chart-policy option[value=p499]").waitFor({ state: "attached" });
  await page.getByLabel("Add a policy").selectOption("p499");
  await page.getByRole("heading", { name: "p499" }).waitFor();
  await assertAccessible(page, "a chart of many");
  await page.close();
});
