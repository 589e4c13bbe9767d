// The load of a link: as one of several colours, and as text.
import type { Link } from "../api/types";
import { bitRate } from "../model/format";

/** Lower bound of each step in bits per second, sum of both directions. */
export const LOADS: { from: number; key: string; words: string }[] = [
  { from: 1e6, key: "load-low", words: "link with 1\u202fMb/s" },
  { from: 1e8, key: "load-mid", words: "100\u202fMb/s" },
  { from: 1e9, key: "load-high", words: "1\u202fGb/s or more" },
];

/** The CSS variable with the colour of a link. */
export function loadColour(bitsPerSecond: number | null | undefined): string {
  const steps = LOADS.filter(({ from }) => (bitsPerSecond ?? 0) >= from);
  return steps[steps.length - 1]?.key ?? "link";
}

/** The load in both directions if known, otherwise their sum. */
export function loadText({
  a,
  b,
  bits_per_second,
  a_to_b_bits_per_second,
  b_to_a_bits_per_second,
}: Link): string {
  if (bits_per_second == null) return "unknown";
  const way = (from: string, to: string, bits: number | null | undefined) =>
    bits == null ? "" : `${from} → ${to} ${bitRate(bits)}`;
  const ways = [
    way(a.switch, b.switch, a_to_b_bits_per_second),
    way(b.switch, a.switch, b_to_a_bits_per_second),
  ].filter(Boolean);
  return ways.length ? ways.join(", ") : bitRate(bits_per_second);
}

/** The state of a link in one word. */
export function linkWord({ is_up, held_ms }: Link): string {
  if (held_ms !== undefined) return "held";
  return is_up ? "up" : "down";
}
