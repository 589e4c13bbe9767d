// The policy form: validation while typing, refusals by the controller, and what is sent.
import assert from "node:assert/strict";
import { test } from "node:test";
import { report, reports } from "./furnished";
import { browser, controller, options, setUp } from "./stage";
import { Refusal } from "./stand-in";
import { assertAccessible, screenshot, until } from "./support";

setUp();

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
    await page.getByText("All bits after the prefix must be zero.").waitFor();
    await page.getByLabel("Source IP").fill("10.0.0.0/24");
    await page.getByText("All bits after the prefix must be zero.").waitFor({ state: "detached" });
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
    await page.getByText("30 frame paths checked from port to port.").waitFor();
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
  const bound = page.getByLabel("Maximum wait of senders, ms");
  assert.equal(await bound.count(), 0, "other contracts have none");
  await page.getByLabel("Delivery").selectOption("lossless");
  await bound.fill("70000");
  await page.getByText("A number from 1 to 65535 milliseconds.").waitFor();
  await page.getByText("Shown when all fields are valid.").waitFor();
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
  const words = /are link-local: switches do not forward them, and they are not copied/;
  const page = await browser.page(`${controller.url}/#/new?name=a&monitor=3`);
  const warned = (field: string) => page.locator(`#field-${field}-warning`).getByText(words);
  await page.getByLabel("EtherType").fill("0x88cc");
  await warned("eth-type").waitFor();
  await page.getByLabel("EtherType").fill("0x88c");
  await warned("eth-type").waitFor({ state: "detached" });
  await page.getByLabel("Direction").selectOption("forward");
  await page.getByLabel("Destination MAC").fill("01:80:c2:00:00:02");
  await warned("dst-mac").waitFor();
  await assertAccessible(page, "a warning");
  await screenshot(page, "warning", "all");
  await page.getByText("30 frame paths checked").waitFor();
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
  await page.getByRole("button", { name: "Create anyway" }).click();
  await page.getByRole("heading", { name: "web", exact: true }).waitFor();
  await page.close();
});

test("a policy is changed in place, where the controller does that", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies/db/edit`);
  await page.getByLabel("Filter").fill("tcp port 5433");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("This controller cannot change a policy in place").waitFor();
  controller.answers.set("PUT /policies/db", reports()[1]);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "db", exact: true }).waitFor();
  const sent = controller.commands.filter((c) => c.what === "PUT /policies/db").pop();
  assert.equal((sent?.body as { filter: string }).filter, "tcp port 5433");
  await page.close();
});

test(
  "each field is described by its hint, also what monitors may share flows",
  options,
  async () => {
    const page = await browser.page(`${controller.url}/#/new`);
    const described = (label: string) =>
      page.getByLabel(label).evaluate((field) =>
        (field.getAttribute("aria-describedby") ?? "")
          .split(" ")
          .map((id) => document.getElementById(id)?.textContent)
          .join(" "),
      );
    await page.getByLabel("Monitor").waitFor();
    assert.match(await described("Monitor"), /share flows: one-of:0x1\/3\+0x2\/4/);
    assert.match(await described("Ends after"), /empty: never/);
    await page.close();
  },
);

test("a field that is wrong has the focus, also where it is folded away", options, async () => {
  const page = await browser.page(`${controller.url}/#/new?name=a&monitor=3&snaplen=5`);
  await page.getByText("Shown when all fields are valid.").waitFor();
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByText("A number from 14 to 65535 bytes.").waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.id);
  await until("it has the focus", async () => (await focused()) === "field-snaplen");
  await page.close();
});

test(
  "screen readers are told the result of a dry run, not each of its rules",
  options,
  async () => {
    const page = await browser.page(`${controller.url}/#/new?name=web&monitor=watch0`);
    const preview = page.getByRole("region", { name: "What will change" });
    await preview
      .locator("[aria-live]")
      .getByText("3 rules and groups are added, 1 removed")
      .waitFor();
    await preview.locator(".diff").first().waitFor();
    assert.equal(await preview.locator("[aria-live] .diff").count(), 0);
    await page.close();
  },
);

test("a policy is made by keyboard alone, with the focus in sight", options, async () => {
  const page = await browser.page(`${controller.url}/#/policies`);
  await page.locator("tr[data-policy=web]").waitFor();
  const focus = () =>
    page.evaluate(() => {
      const one = document.activeElement as HTMLElement;
      const { top, bottom } = one.getBoundingClientRect();
      const isSeen = top < innerHeight && bottom > 0;
      const hasRing = getComputedStyle(one).outlineStyle !== "none";
      return { name: one.id || one.innerText, isOk: isSeen && hasRing };
    });
  /** Presses Tab until an element has the focus; each one before it must show that it has it. */
  const tabTo = async (name: string) => {
    for (let presses = 0; presses < 60; presses++) {
      await page.keyboard.press("Tab");
      const { name: at, isOk } = await focus();
      assert.ok(isOk, `${at} does not show the focus`);
      if (at === name) return;
    }
    assert.fail(`Tab does not lead to ${name}`);
  };
  await tabTo("New policy");
  await page.keyboard.press("Enter");
  await until("the new view has the focus", async () => (await focus()).name === "main");
  for (const [field, text] of [
    ["field-name", "web"],
    ["field-monitor", "watch0"],
    ["field-src-ip", "10.0.3.1"],
  ] as const) {
    await tabTo(field);
    await page.keyboard.type(text);
  }
  await tabTo("Create");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "web", exact: true }).waitFor();
  const sent = controller.commands.find((c) => c.what === "POST /policies");
  assert.deepEqual(sent?.body, {
    name: "web",
    monitor: "watch0",
    "src-ip": "10.0.3.1",
    direction: "both",
  });
  await page.close();
});
