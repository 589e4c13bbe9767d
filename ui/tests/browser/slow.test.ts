// The page while the controller is slow.
import assert from "node:assert/strict";
import { test } from "node:test";
import { DRY_RUN, report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { until } from "./support";

setUp();

/** An answer that is withheld until `release`. */
function held(answer: unknown): { answer: () => Promise<unknown>; release(): void } {
  let release = (): void => {};
  const gate = new Promise<void>((done) => (release = done));
  return { answer: () => gate.then(() => answer), release: () => release() };
}

test("a view whose answer takes long says that it is asked for", options, async () => {
  const views: [string, string, string][] = [
    ["policies", "/policies", "tr[data-policy=web]"],
    ["policies/web", "/policies/web", "#ledger"],
    ["switches", "/switches", "tr[data-switch='0x6']"],
    ["switches/0x6", "/switches/0x6", "#ports"],
    ["events", "/events/log", "td.when"],
    ["audit", "/audit", "td.when"],
  ];
  const page = await browser.page(`${controller.url}/#/charts`);
  for (const [view, path, sign] of views) {
    const usual = controller.answers.get(`GET ${path}`);
    const { answer, release } = held(typeof usual === "function" ? usual() : usual);
    controller.answers.set(`GET ${path}`, answer);
    await page.goto(`${controller.url}/#/${view}`);
    const waiting = page.getByRole("status").getByText("Loading …");
    await waiting.waitFor();
    release();
    await page.locator(sign).first().waitFor();
    await waiting.waitFor({ state: "detached" });
    controller.answers.set(`GET ${path}`, usual);
  }
  await page.close();
});

test("what is not known yet is not said to be nothing", options, async () => {
  const paths = ["/topology", "/policies", "/switches/0x6/rules"];
  const gates = paths.map((path) => {
    const usual = controller.answers.get(`GET ${path}`) as (request: object) => unknown;
    const gate = held(undefined);
    const answer = async (request: object) => {
      await gate.answer();
      return typeof usual === "function" ? usual(request) : usual;
    };
    controller.answers.set(`GET ${path}`, answer);
    return gate;
  });
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.getByRole("status").getByText("Loading …").first().waitFor();
  assert.equal(await page.getByText("No policies").count(), 0);
  assert.equal(await page.getByText("0 switches").count(), 0);
  await page.goto(`${controller.url}/#/switches/0x6`);
  const rules = page.getByRole("region", { name: "Rules" });
  await rules.getByText("Loading …").waitFor();
  for (const { release } of gates) release();
  await rules.getByText("tcp,nw_src=10.0.3.1").waitFor();
  await page.goto(`${controller.url}/#/topology`);
  await page.locator("[data-tap=web]").waitFor();
  await page.getByText("6 switches").waitFor();
  await page.close();
});

test("what is confirmed twice is done once", options, async () => {
  const { answer, release } = held(report("web", { state: { is: "deleted" } }));
  controller.answers.set("DELETE /policies/web", (request: { url?: string }) =>
    request.url!.includes("dry_run") ? DRY_RUN : answer(),
  );
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.getByRole("button", { name: "Delete web" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("30 frame paths checked").waitFor();
  const confirm = dialog.getByRole("button", { name: "Delete" });
  await confirm.click();
  await until("it is under way", () => confirm.isDisabled());
  await confirm.click({ force: true });
  release();
  await dialog.waitFor({ state: "detached" });
  const sent = controller.commands.filter(({ what }) => what === "DELETE /policies/web");
  assert.equal(sent.length, 1);
  await page.close();
});
