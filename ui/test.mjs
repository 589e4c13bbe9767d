// Runs the page's tests: `node test.mjs unit`, `node test.mjs browser`, or both without an
// argument.
//
// Results have the format of cargo's tests, so that `cargo xtask check` counts both alike.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const kinds = process.argv[2] ? [process.argv[2]] : ["unit", "browser"];
const out = join(here, ".test");
rmSync(out, { recursive: true, force: true });
mkdirSync(out);

let status = 0;
for (const kind of kinds) {
  const only = process.argv[3] ?? "";
  const names = readdirSync(join(here, "tests", kind)).filter((name) =>
    name.endsWith(`${only}.test.ts`),
  );
  const entryPoints = names.map((name) => join(here, "tests", kind, name));
  await build({
    entryPoints,
    outdir: join(out, kind),
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
    target: "node18",
    logLevel: "warning",
    outExtension: { ".js": ".mjs" },
    sourcemap: "inline",
  });
  const files = names.map((name) => join(out, kind, name.replace(/\.ts$/, ".mjs")));
  const args = [
    "--enable-source-maps",
    `--test-reporter=${join(here, "tests/reporter.mjs")}`,
    "--test",
    ...files,
  ];
  const run = spawnSync(process.execPath, args, { stdio: "inherit", cwd: here });
  status ||= run.status ?? 1;
}
process.exit(status);
