// The rates of all policies, fed by whatever view asks for them.
import { Rates } from "../model/rates";
import { totals } from "../model/policy";
import { bitRate, packetRate } from "../model/format";
import type { PolicyReport } from "../api/types";

const rates = new Rates();

/** Growth of one policy's counters per second. */
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

/** `1.2 Gb/s`, and drops when there are some. */
export function rateText(name: string): string {
  const rate = rateOf(name);
  if (!rate) return "–";
  const drops = rate.dropped > 0 ? `, ${packetRate(rate.dropped)} dropped` : "";
  return bitRate(rate.deliveredBits) + drops;
}
