// Data from the controller's event of each second: totals of the last five minutes, from when the
// page was opened, and the number of ledgers that do not add up.
import { signal } from "@preact/signals";
import { listen } from "./live";

/** Totals over all policies at one time. */
export interface Moment {
  /** Seconds since 1970. */
  at: number;
  delivered: number;
  matched: number;
  dropped: number;
}

export const moments = signal<Moment[]>([]);
/** Number of policies whose ledger does not add up, of all policies. */
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
