// What the controller tells each second: its totals of the last minutes, kept from when the page was
// opened, and how many ledgers do not add up.
import { signal } from "@preact/signals";
import { listen } from "./live";

/** All policies together at one moment. */
export interface Moment {
  /** Seconds of the clock. */
  at: number;
  delivered: number;
  matched: number;
  dropped: number;
}

export const moments = signal<Moment[]>([]);
/** Policies that do not add up, of all. */
export const mismatches = signal(0);

listen((topic, { policies_that_do_not_add_up: count }) => {
  if (topic === "tick" && typeof count === "number") mismatches.value = count;
});

listen((topic, event) => {
  const { matched_pps: matched, delivered_bps: delivered, dropped_pps: dropped } = event;
  if (topic !== "tick" || typeof delivered !== "number") return;
  const at = Date.parse(String(event.at)) / 1000;
  if (Number.isNaN(at)) return;
  const moment = { at, delivered, matched: Number(matched), dropped: Number(dropped) };
  moments.value = [...moments.value, moment].slice(-MOST_MOMENTS);
});

const MOST_MOMENTS = 300;
