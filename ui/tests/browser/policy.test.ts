// One policy: what its ledger and its ways tell apart.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { furnish, report } from "./furnished";
import { StandIn } from "./stand-in";
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
  // Others make copies now: what is of one switch stays with it.
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
