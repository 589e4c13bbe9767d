// Rates from counters that are read now and then.

/** Counters of one thing at one time. */
interface Reading {
  atMs: number;
  values: number[];
}

/** Remembers the last readings of many counters, and says how fast they grow. */
export class Rates {
  private readonly before = new Map<string, Reading>();
  private readonly perSecond = new Map<string, number[]>();

  /** Takes in the counters of `name` as they are at `atMs`. */
  feed(name: string, atMs: number, values: number[]): void {
    const last = this.before.get(name);
    if (last && atMs - last.atMs < SHORTEST_MS) return;
    if (last) this.perSecond.set(name, growth(last, { atMs, values }));
    // Whoever is asked about stays among the last ones.
    this.before.delete(name);
    this.before.set(name, { atMs, values });
    const [oldest] = this.before.keys();
    if (this.before.size > MOST) this.forget(oldest!);
  }

  /** The growth of each counter per second, once there were two readings. */
  of(name: string): number[] | undefined {
    return this.perSecond.get(name);
  }

  private forget(name: string): void {
    this.before.delete(name);
    this.perSecond.delete(name);
  }
}

/** A counter that went back was set to zero: what it shows has grown since then. */
function growth(before: Reading, now: Reading): number[] {
  const seconds = (now.atMs - before.atMs) / 1000;
  return now.values.map((value, index) => {
    const last = before.values[index] ?? 0;
    return (value >= last ? value - last : value) / seconds;
  });
}

/** More than one view shows; names come and go for as long as the page is open. */
const MOST = 5000;
/** Readings that are closer than this say little. */
const SHORTEST_MS = 400;
