// The audit log.
import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { dateTime } from "../../src/model/format";
import { report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { list } from "./stand-in";

setUp();

/** The text of each cell, by row. */
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

test("the audit log is searched by the controller, and what was not is said", options, async () => {
  const record = { at: "2026-01-01T10:00:02Z", who: "ada", policy: null, result: "accepted" };
  const records = Array.from({ length: 150 }, (_, i) => ({
    ...record,
    seq: 20_150 - i,
    what: i === 140 ? "policy.expire" : "policy.add",
  }));
  controller.answers.set("GET /audit", ({ url }: IncomingMessage) => {
    const q = new URL(url!, "http://x").searchParams.get("q") ?? "";
    const found = records.filter(({ what }) => what.includes(q));
    return { items: found.slice(0, 100), next: "10000", total: q ? found.length : 20_150 };
  });
  const page = await browser.page(`${controller.url}/#/audit`);
  await page.getByText("The first 100 of 20,150 records").waitFor();
  await page.getByLabel("Search records").fill("expire");
  await page.getByText("1 record", { exact: true }).waitFor();
  assert.equal((await cells(page, "Audit log"))[0]![0], "20010");
  await page.getByText("Older records were not searched").waitFor();
  await page.close();
});

test("the audit log says in words who saw packets", options, async () => {
  const { policy } = report("web");
  const record = { seq: 1, at: "2026-01-01T10:00:02Z", who: "ada", policy, result: "accepted" };
  const watched = { ...record, what: "packets.watch" };
  const taken = { ...record, seq: 2, what: "packets.download" };
  controller.answers.set("GET /audit", list([taken, watched]));
  const page = await browser.page(`${controller.url}/#/audit`);
  await page.getByText("packets.watch watched packets").waitFor();
  await page.getByText("packets.download downloaded packets").waitFor();
  await page.close();
});
