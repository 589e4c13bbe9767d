// The rates of all policies, updated by the views that fetch them.
import { Rates } from "../model/rates";
import { totals } from "../model/policy";
import { bitRate, packetRate } from "../model/format";
import type { PolicyReport } from "../api/types";

const rates = new Rates();

/** Rates of one policy, per second. */
export interface PolicyRate {
  matched: number;
  deliveredBits: number;
  dropped: number;
}

export function feed(reports: PolicyReport[], atMs: number): void {
  for (const report of reports) {
    const { matched, deliveredBytes, dropped } = totals(report);
    rates.feed(report.policy.name, atMs, [matched, deliveredBytes, dropped]);
  }
}

export function rateOf(name: string): PolicyRate | undefined {
  const values = rates.of(name);
  if (!values) return undefined;
  const [matched = 0, bytes = 0, dropped = 0] = values;
  return { matched, deliveredBits: bytes * 8, dropped };
}

/** A rate such as `1.2 Gb/s`, with drops if there are any. */
export function rateText(name: string): string {
  const rate = rateOf(name);
  if (!rate) return "–";
  const drops = rate.dropped > 0 ? `, ${packetRate(rate.dropped)} dropped` : "";
  return bitRate(rate.deliveredBits) + drops;
}
