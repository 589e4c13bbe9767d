// Bundles the page into dist/: a script, a worker and a style sheet, each also compressed.
//
// Unchanged files keep their modification time, so that cargo embeds only changed ones again.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const here = fileURLToPath(new URL(".", import.meta.url));
const dist = join(here, "dist");
/** Maximum uncompressed size of all files together, in bytes. */
const LIMIT = 300_000;

const result = await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.tsx", layout: "src/graph/worker.ts" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome109", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  loader: { ".svg": "text" },
  outdir: dist,
  write: false,
  logLevel: "warning",
});

const files = new Map(result.outputFiles.map((f) => [f.path.slice(dist.length + 1), f.contents]));
for (const name of ["index.html", "icon.svg"])
  files.set(name, readFileSync(join(here, "src", name)));
for (const [name, contents] of [...files]) {
  const bytes = Buffer.from(contents);
  files.set(`${name}.gz`, gzipSync(bytes, { level: 9 }));
  files.set(
    `${name}.br`,
    brotliCompressSync(bytes, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 11 },
    }),
  );
}

mkdirSync(dist, { recursive: true });
for (const name of readdirSync(dist))
  if (!files.has(name) && name !== ".gitkeep") rmSync(join(dist, name));
for (const [name, contents] of files) writeIfNew(join(dist, name), Buffer.from(contents));

const plain = [...files].filter(([name]) => !/\.(gz|br)$/.test(name));
const total = plain.reduce((sum, [, contents]) => sum + contents.length, 0);
const sent = plain.reduce((sum, [name]) => sum + files.get(`${name}.br`).length, 0);
console.log(`page: ${plain.length} files, ${total} bytes, ${sent} as brotli`);
if (total > LIMIT) {
  console.error(`page: more than ${LIMIT} bytes; leave something out`);
  process.exit(1);
}

function writeIfNew(path, contents) {
  let old;
  try {
    old = readFileSync(path);
  } catch {
    old = undefined;
  }
  if (!old?.equals(contents)) writeFileSync(path, contents);
}
