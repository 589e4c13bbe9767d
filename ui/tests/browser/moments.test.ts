// Changes while the page is open: a sign-in, the end of a policy, a packet stream that breaks and
// recovers.
import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { test } from "node:test";
import { TCP_SYN, packet } from "../unit/packets";
import { DRY_RUN, report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { Refusal } from "./stand-in";
import { until } from "./support";

setUp();

test("who signs in at the first view stays signed in", options, async () => {
  let isIn = false;
  const asked: string[] = [];
  const refused = new Refusal(401, { code: "no-token", message: "a token is needed" });
  for (const path of ["/me", "/topology", "/policies", "/hosts"]) {
    const answer = controller.answers.get(`GET ${path}`);
    controller.answers.set(`GET ${path}`, (request: IncomingMessage) => {
      asked.push(path);
      if (!isIn) return refused;
      return typeof answer === "function" ? answer(request, "") : answer;
    });
  }
  controller.answers.set("POST /session", () => ((isIn = true), {}));
  const page = await browser.page(controller.url);
  await page.getByLabel("Token").fill("right");
  assert.ok(asked.includes("/topology"), "the first view is asked for before it is known who asks");
  await page.keyboard.press("Enter");
  await page.locator("canvas[data-final=true]").waitFor();
  assert.equal(await page.getByText("Your session has ended").count(), 0);
  await page.close();
});

test("a policy that ends while it is looked at is said to have ended", options, async () => {
  const asked: string[] = [];
  const series = controller.answers.get("GET /policies/web/series");
  controller.answers.set("GET /policies/web/series", () => (asked.push("series"), series));
  const page = await browser.page(`${controller.url}/#/policies/web`);
  await page.locator(".u-wrap").first().waitFor();
  endPolicy("web");
  await page.getByText("There is no policy web").waitFor();
  assert.equal(await page.getByText("active").count(), 0, "nothing says that it goes on");
  assert.equal(await page.getByRole("button", { name: "Delete" }).count(), 0, "no dead button");
  const count = asked.length;
  // Longer than the minimum time between fetches.
  await page.waitForTimeout(1500);
  assert.equal(asked.length, count, "it is asked about no more");
  await page.close();
});

test("what is typed stays when the policy it changes ends", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies/db/edit`);
  await page.getByLabel("Filter").fill("tcp port 5433");
  await page.locator("[data-liveness=live]").waitFor();
  endPolicy("db");
  // Everything is fetched again when the controller is back.
  await controller.stop();
  await page.getByText("The connection to the controller is lost").waitFor();
  await controller.listen();
  await page.locator("[data-liveness=live]").waitFor();
  await until("it was asked for again", () => ended.has("db"));
  assert.equal(await page.getByLabel("Filter").inputValue(), "tcp port 5433");
  await page.close();
});

test(
  "packets are shown once, also after a break and after they were cleared",
  options,
  async () => {
    const policy = { name: "web", monitor: ["watch0", "controller"] };
    controller.answers.set("GET /policies/web", report("web", { policy }));
    const page = await browser.page(`${controller.url}/#/policies/web/packets`);
    const packets = ["one", "two", "three"].map((words) => packet(TCP_SYN, words));
    const watches = () => until("the page watches", () => controller.watcherCount > 0);
    await watches();
    controller.sendPackets(packets.slice(0, 2));
    const rows = page.locator(".packet-list tbody tr button");
    await rows.nth(1).waitFor();
    await page.getByRole("button", { name: "Clear" }).click();
    await page.getByText("No packets yet").waitFor();
    await controller.stop();
    await controller.listen();
    await watches();
    // What a controller does that does not know which packets were shown.
    controller.sendPackets(packets);
    await rows.first().waitFor();
    assert.deepEqual(await rows.allInnerTexts(), ["three"]);
    controller.sendPackets([packet(TCP_SYN, "of another run")], 1, "b");
    await rows.nth(1).waitFor();
    assert.deepEqual(await rows.allInnerTexts(), ["three", "of another run"]);
    await page.close();
  },
);

test("a form asks for one dry run at a time, and then of what is in it", options, async () => {
  const asked: unknown[] = [];
  let release = () => {};
  const released = new Promise<void>((done) => (release = done));
  controller.answers.set("POST /policies", async (_: IncomingMessage, body: string) => {
    asked.push(JSON.parse(body)["dst-port"]);
    await released;
    return DRY_RUN;
  });
  const page = await browser.page(`${controller.url}/#/new?name=a&monitor=3&ip-proto=tcp`);
  await until("it is tried", () => asked.length === 1);
  for (const port of ["80", "81"]) {
    await page.getByLabel("Destination port").fill(port);
    // Longer than the pause after which the form is tried.
    await page.waitForTimeout(1500);
  }
  assert.deepEqual(asked, [undefined], "the first one is not answered yet");
  release();
  await page.getByText("30 frame paths checked").waitFor();
  assert.deepEqual(asked, [undefined, 81]);
  await page.close();
});

/** Policies that were requested after their end. */
const ended = new Set<string>();

function endPolicy(name: string): void {
  const refusal = new Refusal(404, { code: "unknown-policy", message: `no policy ${name}` });
  controller.answers.set(`GET /policies/${name}`, () => (ended.add(name), refusal));
  controller.answers.set(`GET /policies/${name}/series`, () => refusal);
}
