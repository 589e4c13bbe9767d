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

test("an order that concerns only a part of the policies says so", options, async () => {
  const items = Array.from({ length: 100 }, (_, i) => report(`p${i}`));
  controller.answers.set("GET /policies", { items, next: "p99", total: 150 });
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.getByText("The first 100 of 150 policies.").waitFor();
  await page.getByRole("button", { name: "Dropped" }).click();
  await page.getByText("The first 100 of 150 policies, sorted among these only.").waitFor();
  await page.close();
});

test("the time that is left is that of the controller's clock", options, async () => {
  const [minute, now] = [60_000, Date.now()];
  const policy = { ...report("web").policy, expires: new Date(now - 30 * minute).toISOString() };
  controller.answers.set("GET /policies", list([report("web", { policy })]));
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("[data-liveness=live]").waitFor();
  await page.locator("tr[data-policy=web]").getByText("ended").first().waitFor();
  // The browser's clock is an hour ahead.
  controller.send("tick", { id: 1, at: new Date(now - 60 * minute).toISOString() });
  await page
    .locator("tr[data-policy=web]")
    .getByText(/\b(30 min|29 min)/)
    .first()
    .waitFor();
  await page.close();
});
