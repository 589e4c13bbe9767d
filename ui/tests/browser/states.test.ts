// States that a small lab does not have: each view with and without data, checked for accessibility
// in both themes; a ledger that does not add up, a controller that goes and returns, one that
// requires a token, one that lacks endpoints.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, controller, options, setUp } from "./stage";
import { Refusal, list } from "./stand-in";
import { Browser, assertAccessible, noBrowser, screenshot } from "./support";

let dark: Browser;

setUp();
before(async () => {
  if (!noBrowser) dark = await Browser.open("dark");
});
after(() => dark?.close());

const VIEWS: [string, string, string][] = [
  ["topology", "", "canvas[data-final=true]"],
  ["policies", "", "tr[data-policy=web]"],
  ["policy", "policies/web", ".u-wrap"],
  ["new-policy", "new?name=web2&src-ip=10.0.3.1&monitor=watch0", ".diff"],
  ["switches", "", "tr[data-switch='0x6']"],
  ["switch", "switches/0x6", "th:has-text('13')"],
  ["charts", "", ".u-wrap"],
  ["events", "", "text=group table full"],
  ["audit", "", "text=incident 4711"],
];

for (const scheme of ["light", "dark"] as const) {
  for (const [name, path, sign] of VIEWS) {
    test(`${name} in ${scheme} is accessible`, options, async () => {
      const page = await (scheme === "light" ? browser : dark).page(
        `${controller.url}/#/${path || name}`,
      );
      await page.locator(sign).first().waitFor();
      await page.waitForTimeout(300);
      await assertAccessible(page, `${name} in ${scheme}`);
      await screenshot(page, `${name}-${scheme}`, "all");
      await page.close();
    });
  }
}

test("views without anything say what to do", options, async () => {
  for (const path of ["/policies", "/switches", "/hosts", "/events/log", "/audit"])
    controller.answers.set(`GET ${path}`, list([]));
  controller.answers.set("GET /topology", { switches: [], links: [] });
  const cases: [string, RegExp][] = [
    ["topology", /No switch has connected yet/],
    ["policies", /No policies/],
    ["switches", /No switch has connected yet/],
    ["charts", /No policies/],
    ["events", /No events yet/],
    ["audit", /No records yet/],
    ["policies/none", /There is no policy none/],
    ["nowhere", /Page not found/],
  ];
  controller.answers.set(
    "GET /policies/none",
    new Refusal(404, { code: "unknown-policy", message: "none" }),
  );
  const page = await browser.page(controller.url);
  for (const [path, words] of cases) {
    await page.goto(`${controller.url}/#/${path}`);
    await page.getByText(words).first().waitFor();
    await assertAccessible(page, path);
  }
  await page.close();
});

test("what a controller does not offer is said, and nothing is made up", options, async () => {
  for (const path of ["/topology", "/policies/web/series", "/events/log", "/audit"])
    controller.answers.delete(`GET ${path}`);
  controller.answers.set(
    "POST /policies",
    new Refusal(501, { code: "not-offered", message: "leave dry_run out" }),
  );
  const page = await browser.page(`${controller.url}/#/policies/web`);
  await page.getByText("Chart: not available in this controller").waitFor();
  await page.goto(`${controller.url}/#/new?name=a&monitor=3`);
  await page.getByText("Dry run: not available in this controller").waitFor();
  await page.goto(`${controller.url}/#/audit`);
  await page.getByText("Audit log: not available in this controller").waitFor();
  await page.goto(`${controller.url}/#/topology`);
  await page.getByText("does not report links").waitFor();
  assert.match(await page.locator("[data-what=size]").innerText(), /2 switches, 0 links/);
  await page.close();
});

test("a ledger that does not add up is red wherever it is shown", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies`);
  const row = page.locator("tr[data-policy=db]");
  await row.waitFor();
  assert.match((await row.getAttribute("class")) ?? "", /bad-row/);
  await row.getByText("does not add up").waitFor();
  await page.goto(`${controller.url}/#/topology?tap=db`);
  await page.getByLabel("Selected").getByText("does not add up").waitFor();
  await page.goto(`${controller.url}/#/policies/db`);
  await page.getByRole("heading", { name: /Ledger.*does not add up/ }).waitFor();
  await page.close();
});

test("a lost connection is said, and heals by itself", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("[data-liveness=live]").waitFor();
  await controller.stop();
  await page.getByText("The connection to the controller is lost").waitFor();
  await page.locator("tr[data-policy=web]").waitFor();
  await assertAccessible(page, "lost");
  await controller.listen();
  await page.locator("[data-liveness=live]").waitFor();
  assert.equal(await page.getByText("The connection to the controller is lost").count(), 0);
  await page.close();
});

test("a follower says where the leader is, and goes on when it leads", options, async () => {
  const leader = "http://10.0.1.2:8653";
  const refusal = { code: "not-leader", message: "this controller follows another one", leader };
  const paths = ["GET /events", "GET /events/log", "GET /policies"];
  const before = paths.map((path) => [path, controller.answers.get(path)] as const);
  for (const path of paths) controller.answers.set(path, new Refusal(421, refusal));
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.getByText("this controller follows another one").waitFor();
  await page.locator("[data-liveness=follows]").waitFor();
  const link = page.getByRole("link", { name: "Open the page of that controller" });
  assert.equal(await link.getAttribute("href"), leader);
  assert.equal(await page.getByText("The connection to the controller is lost").count(), 0);
  await assertAccessible(page, "a follower");
  // Without the event stream, the view retries by itself.
  controller.answers.set("GET /policies", before[2]![1]);
  await page.locator("tr[data-policy=web]").waitFor();
  for (const [path, answer] of before) controller.answers.set(path, answer);
  await page.locator("[data-liveness=live]").waitFor();
  await page.close();
});

test("alarms are told at once", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("[data-liveness=live]").waitFor();
  controller.send("alarm", { id: 9, switch: "0x1", text: "the link 0x1/2 is down" });
  const alarm = page.locator("[aria-live=assertive]").getByText("the link 0x1/2 is down");
  await alarm.waitFor();
  await page.getByRole("button", { name: "Dismiss" }).click();
  await alarm.waitFor({ state: "detached" });
  await page.close();
});

test("a token is asked for, wrong ones are refused, the right one lets in", options, async () => {
  const refused = new Refusal(401, { code: "no-token", message: "a token is needed" });
  const me = controller.answers.get("GET /me");
  controller.answers.set("GET /me", refused);
  controller.answers.set("POST /session", (_: unknown, body: string) => {
    if (JSON.parse(body).token !== "right") return refused;
    controller.answers.set("GET /me", {
      ...(me as object),
      name: "ada",
      role: "operator",
      has_tokens: true,
    });
    return {};
  });
  controller.answers.set("DELETE /session", {});
  const page = await browser.page(controller.url);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The token is not valid").waitFor();
  await assertAccessible(page, "sign in");
  await screenshot(page, "sign-in-light", "all");
  await page.getByLabel("Token").fill("right");
  await page.keyboard.press("Enter");
  await page.getByText("ada (operator)").waitFor();
  assert.equal(await page.getByRole("link", { name: "Audit" }).count(), 0, "for admins only");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.ok(
    controller.commands.every(({ mark }) => mark === "1"),
    "each change says that it is ours",
  );
  await page.close();
});

test("who may only look has nothing to change with", options, async () => {
  controller.answers.set("GET /me", {
    name: "eve",
    role: "viewer",
    version: "0.1.0",
    started_at: "",
    has_tokens: true,
  });
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("tr[data-policy=web]").waitFor();
  assert.equal(await page.getByRole("link", { name: "New policy" }).count(), 0);
  assert.equal(await page.getByRole("button", { name: /Delete/ }).count(), 0);
  await page.goto(`${controller.url}/#/new`);
  await page.getByText("You cannot change policies").waitFor();
  await page.close();
});

test("links, ports and hosts that come and go are told in words", options, async () => {
  const page = await browser.page(`${controller.url}/#/events`);
  for (const words of [
    "02:00:00:00:00:07 in VLAN 5 moved from 0x5/2 (t2) to 0x6/1 (p1)",
    "0x5/3 – 0x6/2 (p2) is down",
    "0x6/2 (p2) is down",
  ])
    await page.getByText(words, { exact: true }).waitFor();
  const at_port = { switch: "0x6", port: 9, name: "" };
  const data = { what: "seen", mac: "02:00:00:00:00:09", vlan: null, at_port, untold: 7 };
  controller.send("host", data);
  await page.getByText("02:00:00:00:00:09 was seen at 0x6/9 (7 earlier events omitted)").waitFor();
  await page.close();
});

test("a search for events that finds none says so", options, async () => {
  const page = await browser.page(`${controller.url}/#/events`);
  await page.getByText("group table full").waitFor();
  await page.getByLabel("Search events").fill("nowhere");
  await page.getByText("No matching events").waitFor();
  assert.equal(await page.getByText("No events yet").count(), 0);
  await page.close();
});

test("events that are not shown are counted", options, async () => {
  const events = controller.answers.get("GET /events/log") as { items: unknown[] };
  controller.answers.set("GET /events/log", { items: events.items, next: "6", total: 4096 });
  const page = await browser.page(`${controller.url}/#/events`);
  await page.getByText("The newest 6 events; the controller keeps 4,096.").waitFor();
  await page.close();
});

test("a fabric that cannot be read is not shown as an empty picture", options, async () => {
  const message = "nobody leads just now";
  const usual = controller.answers.get("GET /topology");
  controller.answers.set("GET /topology", new Refusal(503, { code: "no-leader", message }));
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.getByText(`Topology: ${message}`).waitFor();
  assert.equal(await page.locator("canvas, .legend").count(), 0);
  controller.answers.set("GET /topology", usual);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.close();
});
