// Streams, sessions and connections that break while the page is in use, and recover.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TCP_SYN, packet } from "../unit/packets";
import { furnish, report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { Refusal } from "./stand-in";
import { until } from "./support";

setUp();

const NO_TOKEN = new Refusal(401, { code: "no-token", message: "a token is needed" });

test("packets go on after a controller that did not give them for a while", options, async () => {
  const watched = report("web", { policy: { name: "web", monitor: "controller" } });
  controller.answers.set("GET /policies/web", watched);
  const page = await browser.page(`${controller.url}/#/policies/web/packets`);
  await until("the page watches", () => controller.watcherCount === 1);
  controller.sendPackets([packet(TCP_SYN, "the first")]);
  await page.getByRole("button", { name: "the first" }).waitFor();
  const refusal = { code: "no-leader", message: "nobody leads just now" };
  controller.answers.set("GET /policies/web/packets", new Refusal(503, refusal));
  await controller.stop();
  await controller.listen();
  await page.getByText("nobody leads just now").waitFor();
  controller.answers.delete("GET /policies/web/packets");
  await until("the page watches again", () => controller.watcherCount === 1);
  await page.getByText("nobody leads just now").waitFor({ state: "detached" });
  controller.sendPackets([packet(TCP_SYN, "the second")], 1, "b");
  await page.getByRole("button", { name: "the second" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "the first" }).count(), 1, "it is kept");
  await page.close();
});

test("what was known stays while the connection is lost, which is said once", options, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("[data-tap=web]").waitFor();
  await page.locator("[data-liveness=live]").waitFor();
  await controller.stop();
  await page.locator("[data-liveness=lost]").waitFor();
  // Long enough for each list to be fetched again.
  await page.waitForTimeout(3500);
  assert.equal(await page.locator("[data-tap=web]").count(), 1);
  assert.equal(await page.getByRole("alert").count(), 1);
  await page.goto(`${controller.url}/#/policies`);
  await controller.listen();
  await page.locator("tr[data-policy=web]").waitFor();
  await page.close();
});

test("what was typed is there again after a session has ended", options, async () => {
  const me = controller.answers.get("GET /me");
  controller.answers.set("POST /session", {});
  const page = await browser.page(`${controller.url}/#/new`);
  const [name, reason] = [page.getByLabel("Name"), page.getByLabel("Reason")];
  await name.fill("incident");
  await reason.fill("a long story");
  await page.getByLabel("Monitor").fill("0x6/13");
  // The dry run is the request that gets this answer.
  controller.answers.set("POST /policies", NO_TOKEN);
  controller.answers.set("GET /me", NO_TOKEN);
  await page.getByLabel("Source IP").fill("10.0.0.1");
  await page.getByText("Your session has ended").waitFor();
  const focused = await page.evaluate(() => document.activeElement?.id);
  assert.equal(focused, "token", "the field for the token has the focus");
  controller.answers.set("GET /me", me);
  furnish(controller);
  await page.getByLabel("Token").fill("right");
  await page.getByRole("button", { name: "Sign in" }).click();
  await name.waitFor();
  assert.deepEqual(
    [await name.inputValue(), await reason.inputValue()],
    ["incident", "a long story"],
  );
  // A user who cancels starts with an empty form.
  await page.getByRole("link", { name: "Cancel" }).click();
  await page.getByRole("link", { name: "New policy" }).first().click();
  assert.equal(await name.inputValue(), "");
  await page.close();
});
