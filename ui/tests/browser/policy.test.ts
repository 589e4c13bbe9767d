// One policy: rows of its ledger and its paths are distinguishable.
import assert from "node:assert/strict";
import { test } from "node:test";
import { dateTime } from "../../src/model/format";
import { report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { list } from "./stand-in";
import { screenshot } from "./support";

setUp();

test("copies for this page are told by switch, and each way once", options, async () => {
  const [whole] = report("web").copied;
  const here = (id: string, packets: number) => ({
    ...whole!,
    monitor: { switch: id, port: 0xfffffffd, name: "controller" },
    packets,
  });
  const way = (id: string) => ({
    monitor: whole!.monitor,
    hops: [{ switch: id }, { switch: "0x6", out_port: 13 }],
  });
  const shown = (ids: string[]) =>
    report("web", {
      copied: [...ids.map((id) => here(id, Number(id))), whole],
      path: ids.map(way),
    });
  controller.answers.set("GET /policies/web", shown(["0x3", "0x4", "0x5"]));
  const page = await browser.page(`${controller.url}/#/policies/web`);
  const rows = page.getByRole("region", { name: "Ledger by monitor" }).locator("tbody tr");
  await rows.nth(3).waitFor();
  assert.deepEqual(await rows.locator("th").allInnerTexts(), [
    "controller, from 0x3",
    "controller, from 0x4",
    "controller, from 0x5",
    "watch0 (0x6/13)",
  ]);
  // Other switches make copies now; the row of a switch remains the same element.
  const kept = await rows.nth(1).elementHandle();
  controller.answers.set("GET /policies/web", shown(["0x4", "0x5"]));
  await rows.nth(3).waitFor({ state: "detached" });
  assert.equal(
    await kept!.evaluate((row) => (row as HTMLElement).innerText.split("\t")[0]),
    "controller, from 0x4",
  );
  assert.match(await page.locator(".paths").innerText(), /^0x4 .*\n0x5 /);
  await page.close();
});

test("nothing in a text is markup, or turns around what is beside it", options, async () => {
  const evil = `<img src=x onerror="window.isTaken=1">\u202e`;
  const seen = `<img src=x onerror="window.isTaken=1">\\u{202e}`;
  const policy = { name: "web", monitor: "watch0", owner: evil, reason: evil };
  const state = { is: "partial", reason: evil };
  const one = report("web", { policy, state, owner: evil, changed_by: evil, notes: [evil] });
  controller.answers.set("GET /policies/web", one);
  controller.answers.set("GET /policies", list([one]));
  const record = { seq: 1, at: "2026-01-01T10:00:02Z", who: evil, role: "viewer", from: evil };
  const result = `refused: ${evil}`;
  controller.answers.set("GET /audit", list([{ ...record, what: evil, policy, result }]));
  const port = { switch: evil, port: 1, name: evil };
  const happened = { id: 1, at: record.at, event: "port", what: "down", at_port: port };
  controller.answers.set("GET /events/log", list([happened]));
  const page = await browser.page(`${controller.url}/#/policies/web`);
  for (const path of ["policies/web", "policies", "audit", "events", "topology?tap=web"]) {
    await page.goto(`${controller.url}/#/${path}`);
    await page.locator("main").getByText(seen).first().waitFor();
    const text = await page.locator("body").innerText();
    assert.doesNotMatch(text, /\u202e/, path);
    const images = await page.locator("main img").count();
    const isTaken = await page.evaluate(() => "isTaken" in window);
    assert.deepEqual([images, isTaken], [0, false], path);
  }
  controller.send("alarm", { id: 9, switch: "0x1", text: evil });
  await page.locator("[aria-live=assertive]").getByText(seen).waitFor();
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
  const last = await fact("Last changed").locator("dd").innerText();
  assert.equal(last, `${dateTime(changed.changed_at)} by bob`);
  await screenshot(page, "policy-changed", "all");
  await page.close();
});

test("what is to be known of a policy is in sight wherever it is looked at", options, async () => {
  const note = "not everything could be proved when it was applied: 0x6 was away";
  const one = report("web", { notes: [note] });
  controller.answers.set("GET /policies/web", one);
  controller.answers.set("GET /policies", list([one, report("db")]));
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.getByRole("link", { name: "1 note on web" }).click();
  await page.locator(".note").getByText(note).waitFor();
  await page.goto(`${controller.url}/#/topology?tap=web`);
  await page.getByLabel("Selected").getByText(note).waitFor();
  await page.close();
});

test("few drops among many packets have a scale of their own", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies/web`);
  const chart = (title: string) => page.getByRole("figure").filter({ hasText: title });
  await chart("Copies dropped").getByText("now: 120\u202fp/s").waitFor();
  await chart("Packets matched")
    .getByText(/now: \d\d\.\d\u202fkp\/s/)
    .waitFor();
  assert.equal(await chart("Copies dropped").locator(".u-series").count(), 2, "time and drops");
  await page.close();
});
