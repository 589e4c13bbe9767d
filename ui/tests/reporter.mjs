// Reports tests in the format of cargo's tests: `test NAME ... ok`, `SKIP: why`, and the totals.
import { basename } from "node:path";

export default async function* report(events) {
  const sums = { passed: 0, failed: 0 };
  for await (const { type, data } of events) {
    if (type === "test:stdout" || type === "test:stderr") yield data.message;
    if (type === "test:pass" && isTest(data)) {
      sums.passed += 1;
      // As with cargo's tests, a skipped test counts as passed; `cargo xtask check` corrects the
      // total.
      if (data.skip !== undefined) yield `SKIP: ${data.skip}\n`;
      yield `test ${nameOf(data)} ... ok\n`;
    }
    if (type === "test:fail" && isTest(data)) {
      sums.failed += 1;
      yield `test ${nameOf(data)} ... FAILED\n${words(data.details.error)}\n`;
    }
  }
  const result = sums.failed === 0 ? "ok" : "FAILED";
  yield `\ntest result: ${result}. ${sums.passed} passed; ${sums.failed} failed; 0 ignored; 0 measured; 0 filtered out\n`;
}

/** Node 18 also reports each file as a test. */
const isTest = (data) =>
  !/\.mjs$/.test(data.name) || data.details?.error?.failureType === "testCodeFailure";

const nameOf = ({ name, file }) =>
  `page::${file ? basename(file).replace(/\.test\.m?[jt]s$/, "") + "::" : ""}${name}`;

function words(error) {
  const cause = error?.cause ?? error;
  return (cause?.stack ?? String(cause?.message ?? cause))
    .split("\n")
    .map((line) => `    ${line}`)
    .join("\n");
}
