// Layout with long names and in narrow windows.
import assert from "node:assert/strict";
import { test } from "node:test";
import { report } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { list } from "./stand-in";
import { screenshot } from "./support";

setUp();

/** A policy with long texts in all fields. */
function long() {
  const name = "incident-in-the-datacentre-of-the-west-4711-second-attempt-by-an";
  const reason = "r".repeat(200);
  const owner = `${"o".repeat(40)}@operations.example.com`;
  return report(name, { policy: { ...report(name).policy, name, owner, reason } });
}

test("long texts break, and what can be done stays in sight", options, async () => {
  const one = long();
  controller.answers.set("GET /policies", list([one, report("web")]));
  const { policy } = one;
  const record = { seq: 1234, at: "2026-01-01T10:00:02Z", who: "configuration", role: "operator" };
  const result = `refused: monitor 10.9.9.9 is not known yet: ${"it has not sent ARP; ".repeat(9)}`;
  const more = { from: "192.168.100.200", what: "packets.download", until: record.at };
  const hash = "9f86d081884c7d659a2feaa0c55ad015";
  const whole = { ...record, ...more, policy, reason: "r".repeat(200), result, hash };
  controller.answers.set("GET /audit", list([whole]));
  const page = await browser.page(`${controller.url}/#/policies`);
  for (const [path, label] of [
    ["policies", "Policies"],
    ["audit", "Audit log"],
  ] as const) {
    await page.goto(`${controller.url}/#/${path}`);
    const table = page.getByRole("region", { name: label, exact: true });
    await table.locator("tbody tr").first().waitFor();
    const [has, wants] = await table.evaluate((one) => [one.clientWidth, one.scrollWidth]);
    await screenshot(page, `long-${path}`, "all");
    assert.ok(wants! <= has!, `${path}: ${wants} pixels in ${has}`);
  }
  await page.close();
});

test("no view is wider than a telephone", options, async () => {
  const one = long();
  const path = `policies/${one.policy.name}`;
  // More policies than are charted at first; the others can be selected.
  const others = [1, 2, 3, 4].map((n) => {
    const name = `${one.policy.name}${n}`;
    return { ...one, policy: { ...one.policy, name } };
  });
  controller.answers.set("GET /policies", list([one, ...others]));
  for (const below of ["", "/series", "/packets"])
    controller.answers.set(`GET /${path}${below}`, below ? { points: [] } : one);
  const page = await browser.page(controller.url);
  await page.setViewportSize({ width: 390, height: 800 });
  const views = ["topology", "policies", path, `${path}/edit`, `${path}/packets`];
  for (const view of [...views, "switches", "switches/0x6", "charts", "events", "audit"]) {
    await page.goto(`${controller.url}/#/${view}`);
    await page.locator("main h1").waitFor();
    await page.waitForTimeout(400);
    const wants = await page.evaluate(() => document.documentElement.scrollWidth);
    await screenshot(page, `narrow-${view.replace(/.*\//, "")}`, "all");
    assert.ok(wants <= 390, `${view} wants ${wants} pixels`);
  }
  await page.close();
});

test("what to do with an empty controller can be read on a telephone", options, async () => {
  for (const path of ["/policies", "/switches", "/hosts"])
    controller.answers.set(`GET ${path}`, list([]));
  controller.answers.set("GET /topology", { switches: [], links: [] });
  const page = await browser.page(controller.url);
  await page.setViewportSize({ width: 390, height: 844 });
  for (const view of ["topology", "switches"]) {
    await page.goto(`${controller.url}/#/${view}`);
    await page.getByText("ovs-vsctl set-controller").waitFor();
    const wants = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wants <= 390, `${view} wants ${wants} pixels`);
  }
  await page.close();
});

test("no choice of the form is cut off", options, async () => {
  const page = await browser.page(`${controller.url}/#/new?delivery=lossless`);
  await page.getByText("More", { exact: true }).click();
  for (const width of [1440, 1280, 390]) {
    await page.setViewportSize({ width, height: 900 });
    const cut = await page.evaluate(() => {
      const probe = document.createElement("canvas").getContext("2d")!;
      return [...document.querySelectorAll<HTMLSelectElement>(".policy-form select")].flatMap(
        (select) => {
          probe.font = getComputedStyle(select).font;
          // The arrow takes 20 pixels, padding and border 24.
          const room = select.offsetWidth - 44;
          const texts = [...select.options].map(({ text }) => text);
          return texts.filter((text) => probe.measureText(text).width > room);
        },
      );
    });
    assert.deepEqual(cut, [], `${width} pixels`);
  }
  await page.close();
});

test("folded fields stand side by side where there is room", options, async () => {
  const page = await browser.page(`${controller.url}/#/new`);
  await page.getByText("More", { exact: true }).click();
  const top = async (label: string) => (await page.getByLabel(label).boundingBox())!.y;
  assert.equal(await top("Schedule"), await top("Snaplen, bytes"));
  await page.close();
});

/** Typical policies: addresses, counters in the millions, an expiry, problems. */
const usual = (count: number) =>
  Array.from({ length: count }, (_, n) => {
    const name = `incident-${4700 + n}`;
    const drops = { egress_full: 1_234_567 };
    const base = report(name);
    const policy = {
      ...base.policy,
      "src-ip": "192.168.100.200/31",
      "dst-mac": "02:00:00:00:00:fe",
      "ip-proto": "tcp",
      "dst-port": "8080-8443",
      expires: "2099-01-01T00:00:00Z",
    };
    const counts = { packets: 123_456_789, bytes: 12_345_678_900 };
    const copied = base.copied.map((one) => ({
      ...one,
      counts,
      delivered: counts,
      dropped: drops,
    }));
    const owner = "ann@operations.example.com";
    return { ...base, policy, owner, matched: counts, copied, adds_up: n % 3 !== 0 };
  });

test("policies find room in a small window, and their headings stay", options, async () => {
  controller.answers.set("GET /policies", list(usual(60)));
  const page = await browser.page(`${controller.url}/#/policies`);
  for (const width of [1024, 1280, 390]) {
    await page.setViewportSize({ width, height: 768 });
    const table = page.getByRole("region", { name: "Policies", exact: true });
    await table.locator("tbody tr").last().waitFor();
    await screenshot(page, `usual-${width}`, "all");
    const [has, wants] = await table.evaluate((one) => [one.clientWidth, one.scrollWidth]);
    if (width >= 1024) assert.ok(wants! <= has!, `${width}: ${wants} pixels in ${has}`);
    await table.locator("tbody tr").last().scrollIntoViewIfNeeded();
    const head = await table.locator("thead th").first().boundingBox();
    const row = await table.locator("tbody tr").last().boundingBox();
    await screenshot(page, `usual-${width}-below`, "all");
    assert.ok(head && head.y >= 0 && head.y + head.height <= 768, `${width}: head at ${head?.y}`);
    assert.ok(row && row.y >= head.y, `${width}: the last row at ${row?.y}`);
  }
  await page.close();
});
