// Use of the page with a real controller, real switches and real traffic.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { Lab, noLab } from "./lab";
import { Browser, assertAccessible, isRed, noBrowser, screenshot, until } from "./support";

const skip = noBrowser ?? noLab;
let lab: Lab;
let browser: Browser;

before(async () => {
  if (skip) return;
  // Two spines, three leaves, two hosts at each leaf: a topology with loops and equal-cost paths.
  const links: [number, number][] = [1, 2].flatMap((spine) =>
    [3, 4, 5].map((leaf): [number, number] => [spine, leaf]),
  );
  lab = await Lab.open({ switches: 5, links, hosts: [3, 3, 4, 4, 5, 5] });
  await lab.introduce();
  browser = await Browser.open("light");
});
after(async () => {
  try {
    await browser?.close();
  } finally {
    // Closed even if the browser reports an error: otherwise switches and namespaces would remain.
    lab?.close();
  }
});

/** A number in the ledger on the policy's page. */
async function ledgered(page: Page, what: string): Promise<number> {
  const cell = page.locator(`[data-what=${what}]`).first();
  const text = (await cell.count()) === 0 ? "0" : await cell.innerText();
  return Number(text.replace(/\D/g, ""));
}

test("the page is part of the binary and shows what is there", { skip }, async () => {
  const page = await browser.page(lab.url);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.locator("[data-liveness=live]").waitFor();
  assert.match(
    await page.locator("[data-what=size]").innerText(),
    /^5 switches, 6 links, 6 hosts$/,
  );
  await assertAccessible(page, "topology");
  await page.close();
});

test(
  "a policy is made on the page, copies arrive in its ledger, and it is deleted",
  { skip },
  async () => {
    const [one, two] = [lab.hosts[0]!, lab.hosts[2]!];
    const page = await browser.page(`${lab.url}/#/policies`);
    await page.getByText("No policies").waitFor();
    await page.getByRole("link", { name: "New policy" }).first().click();
    await page.getByLabel("Name").fill("pings");
    await page.getByLabel("Monitor").fill("0x5/2");
    await page.getByLabel("Source IP").fill(one.address);
    await page.getByLabel("IP protocol").fill("icmp");
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("heading", { name: "pings", exact: true }).waitFor();
    await page.locator("main").getByText("active").first().waitFor();
    assert.ok(lab.ping(one, two.address, 50), "the traffic is not disturbed");
    await until(
      "the copies are in the ledger",
      async () => (await ledgered(page, "delivered")) >= 50,
    );
    await page.getByRole("heading", { name: /Ledger.*adds up/ }).waitFor();
    const report = await lab.ask("/policies/pings");
    assert.equal(report.adds_up, true, JSON.stringify(report));
    await screenshot(page, "lab-policy", "all");
    await page.getByRole("link", { name: "Show in topology" }).click();
    await page.getByRole("heading", { name: "TAP pings" }).waitFor();
    await page.locator("canvas[data-final=true]").waitFor();
    await screenshot(page, "lab-topology", "all");
    await page.goto(`${lab.url}/#/policies`);
    await page.getByRole("button", { name: "Delete pings" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByText("No policies").waitFor();
    assert.deepEqual((await lab.ask("/policies")).items, []);
    await page.goto(`${lab.url}/#/audit`);
    await page.getByText("policy.delete").first().waitFor();
    await page.getByText("policy.add").first().waitFor();
    await page.close();
  },
);

test("a policy is changed on the page, and its copies go elsewhere", { skip }, async () => {
  const [one, two] = [lab.hosts[0]!, lab.hosts[2]!];
  const policy = { name: "moves", "src-ip": one.address, "ip-proto": "icmp", monitor: "0x5/2" };
  await lab.command("POST", "/policies", policy);
  const page = await browser.page(`${lab.url}/#/policies/moves/edit`);
  await page.getByLabel("Filter").fill("icmp[icmptype] = icmp-echo");
  await page.getByText("ICMP over IPv4 type 8").waitFor();
  await page.getByLabel("Monitor").fill("0x4/2");
  await page.getByLabel("Reason").fill("ticket 7");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "moves", exact: true }).waitFor();
  await page.getByText("ticket 7").waitFor();
  assert.ok(lab.ping(one, two.address, 20), "the traffic is not disturbed");
  await until(
    "the copies are in the ledger",
    async () => (await ledgered(page, "delivered")) >= 20,
  );
  const report = await lab.ask("/policies/moves");
  assert.deepEqual([report.monitors[0].switch, report.adds_up], ["0x4", true]);
  await page.goto(`${lab.url}/#/audit`);
  await page.getByText("policy.replace").first().waitFor();
  await page.goto(`${lab.url}/#/events`);
  await page
    .getByText(/was seen at 0x[345]/)
    .first()
    .waitFor();
  await lab.command("DELETE", "/policies/moves");
  await page.close();
});

test("a policy is watched on the page, beside its monitor, and no longer", { skip }, async () => {
  const [one, two] = [lab.hosts[0]!, lab.hosts[2]!];
  const fields = { "src-ip": one.address, "ip-proto": "icmp", direction: "forward" };
  const policy = { name: "seen", ...fields, monitor: "0x5/2" };
  await lab.command("POST", "/policies", policy);
  const monitor = async () => (await lab.ask("/policies/seen")).policy.monitor;
  const page = await browser.page(`${lab.url}/#/policies/seen/packets`);
  await page.getByRole("button", { name: "Watch here" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("proved", { exact: false }).first().waitFor();
  await dialog.getByRole("button", { name: "Watch" }).click();
  await page.getByText("No packets yet").waitFor();
  assert.deepEqual(await monitor(), ["0x5/2", "controller"]);
  assert.ok(lab.ping(one, two.address, 5), "the traffic is not disturbed");
  await page.locator(".packet-list tbody tr").nth(4).waitFor();
  const packet = page.locator(".packet-list tbody tr").first();
  assert.match(await packet.innerText(), /10\.0\.0\.1 > 10\.0\.0\.3 ICMP type 8/);
  await page.getByRole("button", { name: "Stop watching" }).click();
  await dialog.getByText("proved", { exact: false }).first().waitFor();
  await dialog.getByRole("button", { name: "Stop" }).click();
  await page.getByText("Packets are not shown here").waitFor();
  assert.equal(await monitor(), "0x5/2");
  await lab.command("DELETE", "/policies/seen");
  await page.close();
});

test("who did what is shown as REST tells it", { skip }, async () => {
  const policy = { name: "whose", owner: "ann", reason: "ticket 9", monitor: "0x5/2", vlan: 7 };
  await lab.command("POST", "/policies", policy);
  const [record] = (await lab.ask("/audit?limit=1")).items;
  const { owner } = await lab.ask("/policies/whose");
  const page = await browser.page(`${lab.url}/#/policies/whose`);
  const fact = (name: string) =>
    page.locator(".fact", { has: page.getByText(name, { exact: true }) }).locator("dd");
  await fact("Added by").waitFor();
  assert.equal(await fact("Added by").innerText(), owner);
  assert.equal(await fact("Owner").innerText(), "ann");
  await page.goto(`${lab.url}/#/audit`);
  const row = page.locator("tbody tr", { has: page.getByText(record.hash.slice(0, 10)) });
  await row.waitFor();
  const cells = await row.locator("td").allInnerTexts();
  assert.equal(cells[0], String(record.seq));
  assert.equal(cells[2], `${record.who} (${record.role})`);
  assert.equal(cells[3], record.from);
  assert.deepEqual(cells.slice(4, 7), [
    record.what,
    "whose: vlan=7 both directions to 0x5/2",
    "ticket 9",
  ]);
  assert.ok(cells[8]!.includes(record.result), `${cells[8]}: ${record.result}`);
  await lab.command("DELETE", "/policies/whose");
  await page.close();
});

test("what the controller refuses is said at the field", { skip }, async () => {
  const page = await browser.page(`${lab.url}/#/new?name=lost&monitor=nowhere`);
  await page.getByRole("button", { name: "Create" }).click();
  await page.locator("#field-monitor-problem").getByText("nowhere").waitFor();
  assert.deepEqual((await lab.ask("/policies")).items, []);
  await page.close();
});

test("a killed switch turns red, and recovers", { skip }, async () => {
  const page = await browser.page(`${lab.url}/#/topology`);
  await page.locator("canvas[data-final=true]").waitFor();
  await page.getByRole("button", { name: "Switches", exact: true }).click();
  const entry = page.locator("[data-node='0x2']");
  await entry.getByText("connected").waitFor();
  await lab.kill("switch2");
  await entry.getByText("lost").waitFor();
  await until("it is red in the picture", () => isRed(page));
  await screenshot(page, "lost");
  lab.startSwitch(2);
  await entry.getByText("connected").waitFor();
  await until("it is not red any more", async () => !(await isRed(page)));
  await lab.isComplete();
  lab.configureHosts();
  await page.goto(`${lab.url}/#/events`);
  await page.getByText("0x2 is lost").first().waitFor();
  await page.close();
});

test(
  "a controller that is killed is missed, and everything is back when it is",
  { skip },
  async () => {
    const page = await browser.page(`${lab.url}/#/new`);
    await page.getByLabel("Name").fill("kept");
    await page.getByLabel("Monitor").fill("0x5/2");
    await page.getByLabel("Source IP").fill(lab.hosts[0]!.address);
    await page.getByRole("button", { name: "Create" }).click();
    await page.locator("main").getByText("active").first().waitFor();
    await lab.kill("controller");
    await page.getByText("The connection to the controller is lost").waitFor();
    await screenshot(page, "lab-no-controller", "all");
    await lab.startController();
    await page.locator("[data-liveness=live]").waitFor();
    await page.locator("main").getByText("active").first().waitFor();
    await page.goto(`${lab.url}/#/policies`);
    await page.getByRole("button", { name: "Delete kept" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByText("No policies").waitFor();
    await page.close();
  },
);

test("the main views with traffic", { skip }, async () => {
  const [watched, peer] = [lab.hosts[0]!, lab.hosts[2]!];
  await lab.introduce();
  const policies = [
    {
      name: "pings",
      "src-ip": watched.address,
      "ip-proto": "icmp",
      direction: "both",
      monitor: "0x5/2",
    },
    { name: "between-leaves", "src-ip": peer.address, direction: "both", monitor: "0x3/2" },
    { name: "web", "ip-proto": "tcp", "dst-port": 80, monitor: "0x4/2" },
  ];
  for (const policy of policies) await lab.command("POST", "/policies", policy);
  const talk = lab.keepTalking(watched, peer.address);
  const dark = await Browser.open("dark");
  try {
    for (const [scheme, from] of [
      ["light", browser],
      ["dark", dark],
    ] as const) {
      const page = await from.page(`${lab.url}/#/topology`);
      await page.locator("canvas[data-final=true]").waitFor();
      await page.locator("[data-tap=pings]").waitFor();
      await until("copies flow", async () =>
        /[1-9]/.test(await page.locator("[data-tap=pings] .muted").innerText()),
      );
      await assertAccessible(page, `topology in ${scheme}`);
      await screenshot(page, `topology-${scheme}`);
      await page.goto(`${lab.url}/#/policies`);
      await page.locator("tr[data-policy=web]").waitFor();
      await screenshot(page, `policies-${scheme}`);
      await page.goto(`${lab.url}/#/policies/pings`);
      await until("there is a chart", async () => (await page.locator(".u-wrap").count()) > 0);
      await screenshot(page, `policy-${scheme}`);
      await page.goto(
        `${lab.url}/#/new?name=mail&src-ip=10.0.0.4&ip-proto=tcp&dst-port=25&monitor=0x5/2&delivery=lossless:20`,
      );
      await page.getByText(/Dry run in progress/).waitFor({ state: "detached" });
      await screenshot(page, `new-policy-${scheme}`);
      await page.goto(`${lab.url}/#/switches/0x3`);
      await page.getByRole("region", { name: "All rules" }).getByText("in place").first().waitFor();
      await page
        .getByRole("region", { name: "All groups" })
        .getByText("in place")
        .first()
        .waitFor();
      await until("what passes its ports is known", async () =>
        /b\/s/.test(await page.getByRole("region", { name: "All ports" }).innerText()),
      );
      await screenshot(page, `switch-${scheme}`);
      await page.goto(`${lab.url}/#/topology`);
      await page.getByRole("button", { name: "Links", exact: true }).click();
      await until("what passes links is known", async () =>
        /b\/s/.test(await page.locator("aside.side").innerText()),
      );
      await page.close();
    }
  } finally {
    talk.kill();
    await dark.close();
  }
  for (const { name } of policies) await lab.command("DELETE", `/policies/${name}`);
});
