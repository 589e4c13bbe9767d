// The controller's totals of the last minutes, kept from when the page was opened.
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

listen((topic, event) => {
  const { matched_pps: matched, delivered_bps: delivered, dropped_pps: dropped } = event;
  if (topic !== "tick" || typeof delivered !== "number") return;
  const at = Date.parse(String(event.at)) / 1000;
  if (Number.isNaN(at)) return;
  const moment = { at, delivered, matched: Number(matched), dropped: Number(dropped) };
  moments.value = [...moments.value, moment].slice(-MOST_MOMENTS);
});

const MOST_MOMENTS = 300;
