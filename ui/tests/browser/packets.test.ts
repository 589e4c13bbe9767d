// Packets of a policy: watching, filtering, decoding, and permissions.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { ARP, PING6, TCP_SYN, UDP_IN_VLAN, packet } from "../unit/packets";
import { DRY_RUN, report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { Refusal } from "./stand-in";
import { assertAccessible, screenshot, until } from "./support";

setUp();

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
  await page.getByText("No packets yet").waitFor();
  await until("the page watches", () => controller.watcherCount > 0);
  controller.sendPackets(packets);
  const rows = page.locator(".packet-list tbody tr");
  await rows.nth(3).waitFor();
  await page.getByLabel("Filter").fill("tcp or arp");
  await page.getByText("2 packets of 4").waitFor();
  await page.getByLabel("Filter").fill("tcp prot 80");
  await page.getByText("'prot' is neither an address").waitFor();
  assert.equal(await rows.count(), 2, "the last filter that was right stays in force");
  await page.getByLabel("Filter").fill("");
  await rows.nth(3).waitFor();
  await rows.first().getByRole("button").press("Enter");
  await page.getByText("40000 > 80, [SYN]").waitFor();
  await assertAccessible(page, "packets");
  await screenshot(page, "packets");
  await page.close();
});

/** A controller that replaces a policy and returns the new one from then on. */
function replaceable(name: string): void {
  controller.answers.set(`PUT /policies/${name}`, (request: { url?: string }, body: string) => {
    if (request.url!.includes("dry_run")) return DRY_RUN;
    const replaced = report(name, { policy: JSON.parse(body) });
    controller.answers.set(`GET /policies/${name}`, replaced);
    return replaced;
  });
}

const CONTROLS = ["Pause", "Clear", "Download pcapng"];

/** Packet buttons are disabled while no packets arrive. */
async function assertIdle(page: Page): Promise<void> {
  for (const name of CONTROLS)
    assert.ok(await page.getByRole("button", { name }).isDisabled(), `${name} does nothing`);
  assert.equal(controller.watcherCount, 0, "nobody asks for packets");
}

test("a policy is watched from its packets, and is as before afterwards", options, async () => {
  replaceable("web");
  const { policy } = report("web");
  const page = await browser.page(`${controller.url}/#/policies/web/packets`);
  await page.getByText("Packets are not shown here").waitFor();
  await page.getByText("The copies of web go to watch0.").waitFor();
  await assertIdle(page);
  await assertAccessible(page, "nothing is watched");
  await screenshot(page, "not-watched", "all");
  await page.getByRole("button", { name: "Watch here" }).click();
  await page.getByRole("dialog").getByText("30 frame paths checked").waitFor();
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
  await page.getByRole("dialog").getByText("30 frame paths checked").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.getByText("Packets are not shown here").waitFor();
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
  await page.getByText("This is the only monitor: to stop, edit or delete the policy.").waitFor();
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
    await page.getByText("Packets are visible to operators only").waitFor();
    await assertIdle(page);
    assert.equal(await page.getByRole("button", { name: /watch/i }).count(), 0, "no dead button");
  }
  await assertAccessible(page, "packets for operators");
  await page.close();
});
