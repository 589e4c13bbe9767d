// Contrast of the colours: text and shapes are distinguishable (WCAG 2.2, 1.4.3 and 1.4.11). The
// browser tests cannot check the canvas or placeholders.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const STYLE = readFileSync("src/style/palette.css", "utf8");

/** The colours that a rule defines. */
function palette(selector: string): Map<string, string> {
  const [, block = ""] = STYLE.split(`${selector} {`);
  const set = block.split("}")[0]!.matchAll(/--([\w-]+):\s*(#[0-9a-f]{6})/g);
  return new Map([...set].map(([, name, colour]) => [name!, colour!]));
}

function luminance(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

/** Text colours, and the backgrounds that they are used on. */
const WRITTEN: Record<string, string[]> = {
  text: ["back", "surface", "node", "group", "plain-fill", "bad-fill", "wait-fill"],
  muted: ["back", "surface", "node", "plain-fill", "bad-fill", "wait-fill"],
  accent: ["back", "surface", "bad-fill"],
  "accent-text": ["accent"],
  good: ["good-fill", "surface"],
  wait: ["wait-fill", "back"],
  bad: ["bad-fill", "back", "surface"],
  tap: ["back"],
  back: ["bad"],
};
/** Colours of lines and shapes, including those of controls. */
const DRAWN: Record<string, string[]> = {
  edge: ["back", "surface"],
  "node-line": ["back"],
  link: ["back"],
  host: ["back"],
  "load-low": ["back"],
  "load-mid": ["back"],
  "load-high": ["back"],
};

for (const selector of [":root", ':root[data-theme="dark"]']) {
  test(`colours of ${selector} stand out from what is behind them`, () => {
    const colours = palette(selector);
    const weak = [WRITTEN, DRAWN].flatMap((pairs, i) =>
      Object.entries(pairs).flatMap(([front, backs]) =>
        backs.flatMap((back) => {
          const ratio = contrast(colours.get(front) ?? "#000000", colours.get(back)!);
          const isEnough = colours.has(front) && ratio >= [4.5, 3][i]!;
          return isEnough ? [] : [`${front} on ${back}: ${ratio.toFixed(2)}`];
        }),
      ),
    );
    assert.deepEqual(weak, []);
  });
}
