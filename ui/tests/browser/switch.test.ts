// Switches: their states, and what they have.
import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, controller, options, setUp } from "./stage";
import { leafSpine } from "../unit/fabrics";
import { list } from "./stand-in";
import { screenshot } from "./support";

setUp();

test("a switch is shown with its ports, tables and groups", options, async () => {
  const page = await browser.page(`${controller.url}/#/switches/0x6`);
  const port = page.locator("tr[data-port='2']");
  await port.getByText("down").waitFor();
  await port.getByText("1.00\u202fGb/s").waitFor();
  const fact = (name: string) => page.locator(".fact", { hasText: name }).locator("dd");
  assert.equal(await fact("Forged LLDP").innerText(), "0");
  assert.equal(await fact("Late LLDP").innerText(), "2");
  const troubles = page.getByRole("region", { name: "Warnings" }).getByRole("listitem");
  await troubles.getByText("2 times an LLDP frame of this controller arrived too late").waitFor();
  assert.equal(await troubles.count(), 2, "and a claim that was not believed");
  const hosts = page.getByRole("region", { name: "All hosts" });
  await hosts.getByText("10.0.6.1 (unproven)").waitFor();
  await page.getByText("without ARP or neighbour discovery").waitFor();
  await screenshot(page, "switch-notes", "all");
  await page.getByText("tcp,nw_src=10.0.3.1").waitFor();
  await page.getByRole("region", { name: "All rules" }).getByText("missing").waitFor();
  await page.getByRole("region", { name: "All groups" }).getByText("output:13").waitFor();
  await page.getByLabel("Table").selectOption("0");
  await page.getByText("No matching rules").waitFor();
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

test(
  "a switch that tells no counters is silent, and what that means is said",
  options,
  async () => {
    const one = controller.answers.get("GET /switches/0x6") as object;
    const silent = { ...one, is_silent: true };
    controller.answers.set("GET /switches/0x6", silent);
    controller.answers.set("GET /switches", list([silent]));
    const page = await browser.page(`${controller.url}/#/switches`);
    await page.locator("tr[data-switch='0x6']").getByText("silent").waitFor();
    await page.goto(`${controller.url}/#/switches/0x6`);
    await page.getByText("the last reported values are used").waitFor();
    await page.close();
  },
);

test("switches are sorted by their number", options, async () => {
  const one = controller.answers.get("GET /switches/0x6") as object;
  const ids = ["0x1", "0x1a", "0x2", "0xf", "0x10"];
  controller.answers.set("GET /switches", list(ids.map((id) => ({ ...one, switch: id }))));
  const page = await browser.page(`${controller.url}/#/switches`);
  await page.locator("tr[data-switch='0x1a']").waitFor();
  const names = await page.locator("tbody th").allInnerTexts();
  assert.deepEqual(names, ["0x1", "0x2", "0xf", "0x10", "0x1a"]);
  await page.close();
});

test(
  "the picture and its lists tell silent switches, and groups that have one",
  options,
  async () => {
    const fabric = leafSpine(2, 4, 3);
    fabric.switches[4]!.is_silent = true;
    controller.serve(fabric);
    const page = await browser.page(`${controller.url}/#/topology`);
    await page.getByRole("button", { name: "Switches", exact: true }).click();
    const first = page.locator("[data-node]").first();
    await first.getByText("silent").waitFor();
    assert.equal(await first.getAttribute("data-node"), "0x5", "before those that are well");
    await first.click();
    await page.getByLabel("Selected").getByText("silent").waitFor();
    await page.getByText("switch 0x5, silent, 3 hosts").waitFor({ state: "attached" });
    const members = fabric.switches.map(({ switch: id }) => id);
    const group = { id: "around 0x1", switches: 6, hosts: 12, members };
    const groups = [{ ...group, is_connected: true, is_silent: true }];
    controller.answers.set("GET /topology", { ...fabric, switches: [], links: [], groups });
    await page.locator("[data-node]").getByText("some silent").waitFor();
    await page.close();
  },
);
