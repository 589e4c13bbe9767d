// How much passes a link: in steps, which have a colour each, and in words.
import type { Link } from "../api/types";
import { bitRate } from "../model/format";

/** From so many bits per second on, both ways together. */
export const LOADS: { from: number; key: string; words: string }[] = [
  { from: 1e6, key: "load-low", words: "link with 1\u202fMb/s" },
  { from: 1e8, key: "load-mid", words: "100\u202fMb/s" },
  { from: 1e9, key: "load-high", words: "1\u202fGb/s or more" },
];

/** The colour of a link, as the style sheet names it. */
export function loadColour(bitsPerSecond: number | null | undefined): string {
  const steps = LOADS.filter(({ from }) => (bitsPerSecond ?? 0) >= from);
  return steps[steps.length - 1]?.key ?? "link";
}

/** What passes, both ways where that is known. */
export function loadText({
  a,
  b,
  bits_per_second,
  a_to_b_bits_per_second,
  b_to_a_bits_per_second,
}: Link): string {
  if (bits_per_second == null) return "not known";
  const way = (from: string, to: string, bits: number | null | undefined) =>
    bits == null ? "" : `${from} → ${to} ${bitRate(bits)}`;
  const ways = [
    way(a.switch, b.switch, a_to_b_bits_per_second),
    way(b.switch, a.switch, b_to_a_bits_per_second),
  ].filter(Boolean);
  return ways.length ? ways.join(", ") : bitRate(bits_per_second);
}

/** How a link is doing, in a word. */
export function linkWord({ is_up, held_ms }: Link): string {
  if (held_ms !== undefined) return "held";
  return is_up ? "up" : "down";
}
