// What the page does when something changes under it: somebody signs in, a policy ends, a stream of
// packets breaks and comes again.
import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { furnish } from "./furnished";
import { Refusal, StandIn } from "./stand-in";
import { Browser, noBrowser } from "./support";

let controller: StandIn;
let browser: Browser;
const options = { skip: noBrowser };

before(async () => {
  if (!noBrowser) browser = await Browser.open();
});
after(() => browser?.close());
beforeEach(async () => {
  controller = await StandIn.start();
  furnish(controller);
});
afterEach(() => controller.stop());

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
