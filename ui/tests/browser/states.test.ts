// What the page makes of answers that a small lab does not give: each view with something in it and
// with nothing, accessible in both palettes; errors, a ledger that does not add up, a controller
// that goes and comes, one that asks for a token, one that lacks endpoints.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { dateTime } from "../../src/model/format";
import { ARP, PING6, TCP_SYN, UDP_IN_VLAN, packet } from "../unit/packets";
import { DRY_RUN, report, reports } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { Refusal, list } from "./stand-in";
import { Browser, assertAccessible, noBrowser, screenshot, until } from "./support";

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
    ["policies", /Nothing is tapped/],
    ["switches", /No switch has connected yet/],
    ["charts", /Nothing is tapped/],
    ["events", /Nothing has happened yet/],
    ["audit", /Nobody has tapped anything yet/],
    ["policies/none", /There is no policy none/],
    ["nowhere", /There is no such page/],
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
  await page.getByText("does not tell of links").waitFor();
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
  const link = page.getByRole("link", { name: "To the page of that controller" });
  assert.equal(await link.getAttribute("href"), leader);
  assert.equal(await page.getByText("The connection to the controller is lost").count(), 0);
  await assertAccessible(page, "a follower");
  // Without the stream, a view asks again by itself.
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
  await page.getByText("does not know this token").waitFor();
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
  await page.getByText("You may look, but not change policies").waitFor();
  await page.close();
});

test(
  "the form says what is wrong while it is typed, and where the controller sees it",
  options,
  async () => {
    controller.answers.set("POST /filters/check", (_: unknown, body: string) =>
      JSON.parse(body).filter.includes("prot ")
        ? new Refusal(422, { code: "bad-filter", message: "'prot' is no word of a filter", at: 4 })
        : { ok: true, regions: 2, matches: ["TCP over IPv4 to port 80", "ARP"], total: 5 },
    );
    const page = await browser.page(`${controller.url}/#/new`);
    await page.getByLabel("Source IP").fill("10.0.0.1/24");
    await page.getByText("All bits behind the prefix must be zero.").waitFor();
    await page.getByLabel("Source IP").fill("10.0.0.0/24");
    await page.getByText("All bits behind the prefix must be zero.").waitFor({ state: "detached" });
    await page.getByLabel("Filter").fill("tcp prot 80");
    await page.getByText("'prot' is no word of a filter (here: “prot 80”)").waitFor();
    await page.getByLabel("Filter").fill("tcp dst port 80 or arp");
    await page.getByText("TCP over IPv4 to port 80").waitFor();
    await page.getByText("and 3 more").waitFor();
    await page.getByLabel("Filter").fill("");
    await page.getByText("TCP over IPv4 to port 80").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Create" }).click();
    assert.equal(
      await page.evaluate(() => document.activeElement?.id),
      "field-name",
      "the first wrong field has the focus",
    );
    assert.equal(controller.commands.filter((c) => c.what === "POST /policies").length, 0);
    await page.getByLabel("Name").fill("web");
    await page.getByLabel("Monitor").fill("watch0");
    await page.getByText("30 ways of frames followed, from port to port.").waitFor();
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("heading", { name: "web", exact: true }).waitFor();
    const sent = controller.commands.find((c) => c.what === "POST /policies");
    assert.deepEqual(sent?.body, {
      name: "web",
      monitor: "watch0",
      "src-ip": "10.0.0.0/24",
      direction: "both",
    });
    await page.close();
  },
);

test("a lossless policy has a bound, which is checked, sent and edited", options, async () => {
  const page = await browser.page(`${controller.url}/#/new?name=web&monitor=watch0`);
  const bound = page.getByLabel("Senders wait at most, ms");
  assert.equal(await bound.count(), 0, "other contracts have none");
  await page.getByLabel("Delivery").selectOption("lossless");
  await bound.fill("70000");
  await page.getByText("A number from 1 to 65535 milliseconds.").waitFor();
  await page.getByText("Shown when all fields are right.").waitFor();
  await bound.fill("20");
  await page.getByText("A number from 1 to 65535").waitFor({ state: "detached" });
  await assertAccessible(page, "a lossless policy");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "web", exact: true }).waitFor();
  const sent = controller.commands.find((c) => c.what === "POST /policies")!.body;
  assert.equal((sent as { delivery: string }).delivery, "lossless:20");
  controller.answers.set("GET /policies/web", report("web", { policy: sent }));
  await page.goto(`${controller.url}/#/policies/web/edit`);
  await bound.waitFor();
  assert.equal(await bound.inputValue(), "20");
  await page.goto(`${controller.url}/#/policies/web`);
  await page.getByText("senders wait for at most 20 ms at a time").waitFor();
  await page.close();
});

test(
  "what the controller refuses of a choice is seen, also where it is folded away",
  options,
  async () => {
    const message = "transport: no such thing here";
    controller.answers.set(
      "POST /policies",
      new Refusal(422, { code: "bad-policy", message, field: "transport" }),
    );
    const page = await browser.page(`${controller.url}/#/new?name=a&monitor=3`);
    await page.getByRole("button", { name: "Create" }).click();
    await page.locator("#field-transport-problem").getByText(message).waitFor();
    await page.close();
  },
);

test("frames that are never copied are warned of while they are typed", options, async () => {
  const words = /for the next bridge: switches do not forward them, and they are not copied/;
  const page = await browser.page(`${controller.url}/#/new?name=a&monitor=3`);
  const warned = (field: string) => page.locator(`#field-${field}-warning`).getByText(words);
  await page.getByLabel("Type of frame").fill("0x88cc");
  await warned("eth-type").waitFor();
  await page.getByLabel("Type of frame").fill("0x88c");
  await warned("eth-type").waitFor({ state: "detached" });
  await page.getByLabel("Direction").selectOption("forward");
  await page.getByLabel("Destination MAC").fill("01:80:c2:00:00:02");
  await warned("dst-mac").waitFor();
  await assertAccessible(page, "a warning");
  await screenshot(page, "warning", "all");
  await page.getByText("30 ways of frames followed").waitFor();
  assert.ok(await page.getByRole("button", { name: "Create" }).isEnabled(), "it is no mistake");
  await page.close();
});

test("what the controller refuses is shown at its field", options, async () => {
  controller.answers.set(
    "POST /policies",
    new Refusal(422, {
      code: "unknown-monitor",
      message: "monitor nowhere: no port of this name",
      field: "monitor",
    }),
  );
  const page = await browser.page(`${controller.url}/#/new?name=a&monitor=nowhere`);
  await page.getByRole("button", { name: "Create" }).click();
  const problem = page.locator("#field-monitor-problem");
  await problem.getByText("no port of this name").waitFor();
  await page.getByLabel("Monitor").fill("somewhere");
  await problem.getByText("no port of this name").waitFor({ state: "detached" });
  await page.close();
});

test("what is not proved can be put in force all the same", options, async () => {
  const message = "policy a: a frame would arrive at 0x1/3 x2, not at 0x1/3 x1";
  controller.answers.set("POST /policies", (request: { url?: string }) =>
    request.url!.includes("force=true")
      ? report("web")
      : new Refusal(409, { code: "not-proved", message, field: null }),
  );
  const page = await browser.page(`${controller.url}/#/new?name=a&monitor=watch0`);
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText("Refused: policy a: a frame would arrive at 0x1/3 x2").waitFor();
  await page.getByRole("button", { name: "Create all the same" }).click();
  await page.getByRole("heading", { name: "web", exact: true }).waitFor();
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
  await page.getByRole("button", { name: "Delete all the same" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(controller.commands.at(-1)?.what, "DELETE /policies/web?force=true");
  await page.close();
});

test("a switch is shown with its ports, tables and groups", options, async () => {
  const page = await browser.page(`${controller.url}/#/switches/0x6`);
  const port = page.locator("tr[data-port='2']");
  await port.getByText("down").waitFor();
  await port.getByText("1.00\u202fGb/s").waitFor();
  const fact = (name: string) => page.locator(".fact", { hasText: name }).locator("dd");
  assert.equal(await fact("Forged LLDP").innerText(), "0");
  assert.equal(await fact("Late LLDP").innerText(), "2");
  const troubles = page.getByRole("region", { name: "What to look at" }).getByRole("listitem");
  await troubles.getByText("2 times LLDP of the controller's own was under way for too").waitFor();
  assert.equal(await troubles.count(), 2, "and a claim that was not believed");
  const hosts = page.getByRole("region", { name: "All hosts" });
  await hosts.getByText("10.0.6.1 (unproven)").waitFor();
  await page.getByText("told it by no ARP or neighbour discovery").waitFor();
  await screenshot(page, "switch-notes", "all");
  await page.getByText("tcp,nw_src=10.0.3.1").waitFor();
  await page.getByRole("region", { name: "All rules" }).getByText("missing").waitFor();
  await page.getByRole("region", { name: "All groups" }).getByText("output:13").waitFor();
  await page.getByLabel("Table").selectOption("0");
  await page.getByText("No such rule").waitFor();
  await page.close();
});

test("nobody knows how the ports of a lost switch are", options, async () => {
  const one = controller.answers.get("GET /switches/0x6") as object;
  controller.answers.set("GET /switches/0x6", { ...one, is_connected: false });
  const page = await browser.page(`${controller.url}/#/switches/0x6`);
  const ports = page.getByRole("region", { name: "All ports" });
  await ports.getByText("unknown").nth(2).waitFor();
  assert.equal(await ports.getByText("up", { exact: true }).count(), 0);
  assert.equal(await ports.getByText("b/s").count(), 0, "what passes is not known either");
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
  await page
    .getByText("02:00:00:00:00:09 was seen at 0x6/9 (7 events before are not told)")
    .waitFor();
  await page.close();
});

test("a policy is changed in place, where the controller does that", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies/db/edit`);
  await page.getByLabel("Filter").fill("tcp port 5433");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("This controller changes no policy in place").waitFor();
  controller.answers.set("PUT /policies/db", reports()[1]);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "db", exact: true }).waitFor();
  const sent = controller.commands.filter((c) => c.what === "PUT /policies/db").pop();
  assert.equal((sent?.body as { filter: string }).filter, "tcp port 5433");
  await page.close();
});

test("policies are searched, sorted, edited and deleted by keyboard", options, async () => {
  controller.answers.set("DELETE /policies/web", (request: { url?: string }) => {
    if (request.url!.includes("dry_run")) return DRY_RUN;
    controller.answers.set("GET /policies", list(reports().slice(1)));
    return report("web", { state: { is: "deleted" } });
  });
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("tr[data-policy=web]").waitFor();
  const names = () => page.locator("tbody th").allInnerTexts();
  assert.deepEqual(await names(), ["db", "mail", "web"]);
  await page.getByRole("button", { name: "Policy", exact: false }).first().press("Enter");
  assert.deepEqual(await names(), ["web", "mail", "db"]);
  await page.getByRole("button", { name: "Delete web" }).press("Enter");
  await page.getByRole("dialog").getByText("Delete web?").waitFor();
  await page.getByRole("dialog").getByText("30 ways of frames followed").waitFor();
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

test("the picture is walked by keyboard, and tells where one is", options, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.locator("canvas").focus();
  await page.keyboard.press("ArrowRight");
  const spoken = page.locator(".canvas-box [aria-live=polite]");
  await spoken.getByText("switch 0x1, connected").waitFor({ state: "attached" });
  await page.keyboard.press("ArrowDown");
  await spoken
    .getByText(/switch 0x[3-6], connected, 3 hosts, 2 links/)
    .waitFor({ state: "attached" });
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^Switch 0x/ }).waitFor();
  await page.close();
});

test("a click on a host, a link or a TAP offers what can be done with it", options, async () => {
  const page = await browser.page(`${controller.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.waitForFunction(
    () =>
      (
        document.querySelector("canvas") as HTMLCanvasElement & {
          renderer: { scene: { spots: unknown[] } };
        }
      ).renderer.scene.spots.length > 0,
  );
  await clickOn(page, "host");
  await page.getByRole("link", { name: "Tap this host" }).waitFor();
  await clickOn(page, "link");
  await page.getByRole("heading", { name: "Link" }).waitFor();
  await page.locator("[data-tap=web]").click();
  await page.getByRole("heading", { name: "TAP web" }).waitFor();
  await clickOn(page, "host");
  await page.getByRole("link", { name: "Tap this host" }).click();
  assert.match(await page.getByLabel("Source MAC").inputValue(), /^02:/);
  assert.equal(await page.getByLabel("Source IP").inputValue(), "");
  await page.close();
});

/** Clicks on the first thing of a kind, where it is drawn. */
async function clickOn(page: Page, kind: string): Promise<void> {
  const at = await page.evaluate((kind) => {
    const canvas = document.querySelector("canvas")! as HTMLCanvasElement & {
      renderer: { hit(p: { x: number; y: number }): { kind: string } | undefined };
    };
    const { width, height, left, top } = canvas.getBoundingClientRect();
    for (let y = 60; y < height - 60; y += 3) {
      for (let x = 20; x < width - 20; x += 3) {
        if (canvas.renderer.hit({ x, y })?.kind === kind) return { x: left + x, y: top + y };
      }
    }
    return undefined;
  }, kind);
  assert.ok(at, `no ${kind} is in the picture`);
  await page.mouse.click(at.x, at.y);
}

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
  await page.getByLabel("Show a policy").selectOption("p499");
  await page.getByRole("heading", { name: "p499" }).waitFor();
  await assertAccessible(page, "a chart of many");
  await page.close();
});

test("packets come live, are filtered and decoded", options, async () => {
  controller.answers.set(
    "GET /policies/web",
    report("web", { policy: { name: "web", monitor: ["watch0", "controller"] } }),
  );
  const packets = [TCP_SYN, UDP_IN_VLAN, ARP, PING6].map((hex, i) =>
    packet(
      hex,
      [
        "10.0.0.1:40000 > 10.0.0.2:80 tcp syn",
        "10.0.0.1:53 > 10.0.0.9:53 udp",
        "arp who has 10.0.0.2",
        "ping",
      ][i],
    ),
  );
  const page = await browser.page(`${controller.url}/#/policies/web/packets`);
  await page.getByText("No packet yet").waitFor();
  await until("the page watches", () => controller.watcherCount > 0);
  controller.sendPackets(packets);
  const rows = page.locator(".packet-list tbody tr");
  await rows.nth(3).waitFor();
  await page.getByLabel("Filter").fill("tcp or arp");
  await page.getByText("2 packets of 4").waitFor();
  await page.getByLabel("Filter").fill("tcp prot 80");
  await page.getByText("'prot' is no address").waitFor();
  assert.equal(await rows.count(), 2, "the last filter that was right stays in force");
  await page.getByLabel("Filter").fill("");
  await rows.nth(3).waitFor();
  await rows.first().getByRole("button").press("Enter");
  await page.getByText("40000 > 80, [SYN]").waitFor();
  await assertAccessible(page, "packets");
  await screenshot(page, "packets");
  await page.close();
});

/** A controller that replaces a policy, and tells what was wanted from then on. */
function replaceable(name: string): void {
  controller.answers.set(`PUT /policies/${name}`, (request: { url?: string }, body: string) => {
    if (request.url!.includes("dry_run")) return DRY_RUN;
    const replaced = report(name, { policy: JSON.parse(body) });
    controller.answers.set(`GET /policies/${name}`, replaced);
    return replaced;
  });
}

const CONTROLS = ["Pause", "Clear", "Download pcapng"];

/** Nothing can be done with packets, as long as none come. */
async function assertIdle(page: Page): Promise<void> {
  for (const name of CONTROLS)
    assert.ok(await page.getByRole("button", { name }).isDisabled(), `${name} does nothing`);
  assert.equal(controller.watcherCount, 0, "nobody asks for packets");
}

test("a policy is watched from its packets, and is as before afterwards", options, async () => {
  replaceable("web");
  const { policy } = report("web");
  const page = await browser.page(`${controller.url}/#/policies/web/packets`);
  await page.getByText("Nothing is watched here").waitFor();
  await page.getByText("The copies of web go to watch0.").waitFor();
  await assertIdle(page);
  await assertAccessible(page, "nothing is watched");
  await screenshot(page, "not-watched", "all");
  await page.getByRole("button", { name: "Watch here" }).click();
  await page.getByRole("dialog").getByText("30 ways of frames followed").waitFor();
  await assertAccessible(page, "watch?");
  await screenshot(page, "watch", "all");
  await page.getByRole("dialog").getByRole("button", { name: "Watch" }).click();
  await until("the page watches", () => controller.watcherCount === 1);
  controller.sendPackets([packet(TCP_SYN, "10.0.0.1:40000 > 10.0.0.2:80 tcp syn")]);
  await page.locator(".packet-list tbody tr").first().waitFor();
  for (const name of CONTROLS.slice(0, 2))
    assert.ok(await page.getByRole("button", { name }).isEnabled(), `${name} works`);
  const file = await page.getByRole("link", { name: "Download pcapng" }).getAttribute("href");
  assert.equal(file, "/api/v1/policies/web/packets?download=pcapng");
  await page.getByRole("button", { name: "Stop watching" }).click();
  await page.getByRole("dialog").getByText("30 ways of frames followed").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.getByText("Nothing is watched here").waitFor();
  await until("the stream is closed", () => controller.watcherCount === 0);
  await assertIdle(page);
  const watched = { ...policy, monitor: ["watch0", "controller"] };
  assert.deepEqual(
    controller.commands.map(({ what, body }) => [what, body]),
    [
      ["PUT /policies/web?dry_run=true", watched],
      ["PUT /policies/web", watched],
      ["PUT /policies/web?dry_run=true", policy],
      ["PUT /policies/web", policy],
    ],
  );
  await page.close();
});

test(
  "what is refused while one wants to watch is said, and nothing is watched",
  options,
  async () => {
    const refused = { code: "no-room", message: "the group table of 0x6 is full", field: null };
    controller.answers.set("PUT /policies/web", new Refusal(409, refused));
    const page = await browser.page(`${controller.url}/#/policies/web/packets`);
    await page.getByRole("button", { name: "Watch here" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Dry run: the group table of 0x6 is full").waitFor();
    await dialog.getByRole("button", { name: "Watch" }).click();
    await dialog.getByText("Not changed: the group table of 0x6 is full").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await assertIdle(page);
    await page.close();
  },
);

test("a policy that this page alone watches is not left without a monitor", options, async () => {
  const mine = report("web", { policy: { name: "web", monitor: "controller" } });
  controller.answers.set("GET /policies/web", mine);
  const page = await browser.page(`${controller.url}/#/policies/web/packets`);
  await page.getByText("They go nowhere else: to stop, edit or delete the policy.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Stop watching" }).count(), 0);
  await page.close();
});

test("who may only look is told so where packets would be", options, async () => {
  const me = { name: "eve", role: "viewer", version: "0.1.0", started_at: "", has_tokens: true };
  controller.answers.set("GET /me", me);
  const watched = report("web", { policy: { name: "web", monitor: ["watch0", "controller"] } });
  controller.answers.set("GET /policies/db", watched);
  const page = await browser.page(controller.url);
  for (const name of ["web", "db"]) {
    await page.goto(`${controller.url}/#/policies/${name}/packets`);
    await page.getByRole("heading", { name: `Packets of ${name}` }).waitFor();
    await page.getByText("Packets are shown to operators").waitFor();
    await assertIdle(page);
    assert.equal(await page.getByRole("button", { name: /watch/i }).count(), 0, "no dead button");
  }
  await assertAccessible(page, "packets for operators");
  await page.close();
});

/** The words of a table's rows, cell by cell. */
const cells = (page: Page, label: string): Promise<string[][]> =>
  page
    .getByRole("region", { name: label })
    .locator("tbody tr")
    .evaluateAll((rows) =>
      rows.map((row) => [...(row as HTMLTableRowElement).cells].map((cell) => cell.innerText)),
    );

test("the audit log's cells are what the record says", options, async () => {
  const page = await browser.page(`${controller.url}/#/audit`);
  await page.getByText("policy.add").waitFor();
  const [added, refused] = await cells(page, "Audit log");
  assert.deepEqual(added, [
    "2",
    dateTime("2026-01-01T10:00:02Z"),
    "ada (operator)",
    "127.0.0.1",
    "policy.add",
    "web: src-ip=10.0.3.1 ip-proto=tcp both directions to watch0",
    "incident 4711",
    "–",
    "● accepted",
    "9f86d08188",
  ]);
  assert.deepEqual(
    [refused![2], refused![4], refused![5], refused![8]],
    ["unknown (operator)", "token.refused", "–", "▲ refused not a token that is known"],
  );
  await page.close();
});

test("who added a policy is not taken for its owner", options, async () => {
  const policy = { name: "web", monitor: "watch0", owner: "ann" };
  const changed = { changed_at: "2026-01-02T00:00:00Z", changed_by: "bob" };
  controller.answers.set("GET /policies/web", report("web", { policy, ...changed }));
  const page = await browser.page(`${controller.url}/#/policies/web`);
  const fact = (name: string) =>
    page.locator(".fact", { has: page.getByText(name, { exact: true }) });
  await fact("Added by").waitFor();
  assert.equal(await fact("Added by").locator("dd").innerText(), "ada");
  assert.equal(await fact("Owner").locator("dd").innerText(), "ann");
  const last = await fact("Changed last").locator("dd").innerText();
  assert.equal(last, `${dateTime(changed.changed_at)} by bob`);
  await screenshot(page, "policy-changed", "all");
  await page.close();
});

test("the audit log says in words who saw packets", options, async () => {
  const { policy } = report("web");
  const record = { seq: 1, at: "2026-01-01T10:00:02Z", who: "ada", policy, result: "accepted" };
  const watched = { ...record, what: "packets.watch" };
  const taken = { ...record, seq: 2, what: "packets.download" };
  controller.answers.set("GET /audit", list([taken, watched]));
  const page = await browser.page(`${controller.url}/#/audit`);
  await page.getByText("packets.watch looked at its packets").waitFor();
  await page.getByText("packets.download took its packets as a file").waitFor();
  await page.close();
});
