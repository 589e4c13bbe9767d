// Rates from counters that are read at irregular intervals.

/** The counters of one object at one time. */
interface Reading {
  atMs: number;
  values: number[];
}

/** Keeps the last readings of many objects and computes their rates. */
export class Rates {
  private readonly before = new Map<string, Reading>();
  private readonly perSecond = new Map<string, number[]>();

  /** Records the counters of `name` at `atMs`. */
  feed(name: string, atMs: number, values: number[]): void {
    const last = this.before.get(name);
    if (last && atMs - last.atMs < SHORTEST_MS) return;
    if (last) this.perSecond.set(name, growth(last, { atMs, values }));
    // Moves the entry to the end, so that the first one is the least recently updated.
    this.before.delete(name);
    this.before.set(name, { atMs, values });
    const [oldest] = this.before.keys();
    if (this.before.size > MOST) this.forget(oldest!);
  }

  /** The growth of each counter per second; `undefined` before the second reading. */
  of(name: string): number[] | undefined {
    return this.perSecond.get(name);
  }

  private forget(name: string): void {
    this.before.delete(name);
    this.perSecond.delete(name);
  }
}

/** A counter that decreased was reset to zero, and has grown by its value since. */
function growth(before: Reading, now: Reading): number[] {
  const seconds = (now.atMs - before.atMs) / 1000;
  return now.values.map((value, index) => {
    const last = before.values[index] ?? 0;
    return (value >= last ? value - last : value) / seconds;
  });
}

/** More than any view shows. The limit is needed because names change while the page is open. */
const MOST = 5000;
/** Readings closer than this give inaccurate rates. */
const SHORTEST_MS = 400;
