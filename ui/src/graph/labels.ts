// Where words go so that none covers another one, or a node: the most important ones choose first,
// and what finds no place is left out until there is room.
import { type Box, type Point, overlap } from "./geometry";

/** Words that want a place. */
export interface Label {
  words: string;
  /** As the style sheet names it. */
  colour: string;
  px: number;
  isBold: boolean;
  rank: Rank;
  size: Point;
  /** Middles of where it may be, the best one first. */
  places: Point[];
}

/** Words at their place. */
export interface Placed extends Label {
  at: Point;
  box: Box;
}

/** Who chooses before whom. */
export const RANKS = ["chosen", "monitor", "tap", "lost", "switch", "host", "load"] as const;
export type Rank = (typeof RANKS)[number];

/** Boxes in cells of a grid, so that few are looked at. */
export class Space {
  private readonly cells = new Map<number, Box[]>();

  take(box: Box): void {
    const [left, top, right, bottom] = cellsOf(box);
    for (let x = left; x <= right; x++) {
      for (let y = top; y <= bottom; y++) {
        const cell = this.cells.get(x * COLUMN + y);
        if (cell) cell.push(box);
        else this.cells.set(x * COLUMN + y, [box]);
      }
    }
  }

  /** Whether nothing is there but perhaps `own`. */
  isFree(box: Box, own?: Box): boolean {
    const [left, top, right, bottom] = cellsOf(box);
    for (let x = left; x <= right; x++) {
      for (let y = top; y <= bottom; y++) {
        const cell = this.cells.get(x * COLUMN + y);
        if (cell?.some((other) => other !== own && overlap(box, other))) return false;
      }
    }
    return true;
  }
}

const cellsOf = ({ left, top, right, bottom }: Box): [number, number, number, number] => [
  Math.floor(left / CELL),
  Math.floor(top / CELL),
  Math.floor(right / CELL),
  Math.floor(bottom / CELL),
];

/**
 * Places for labels in what is free of `space`, within `limits`; each that is placed takes its own.
 * What is chosen is always there, at its best place when none is free.
 */
export function arrange(labels: Label[], space: Space, limits: Box): Placed[] {
  const order = RANKS.flatMap((rank) => labels.filter((label) => label.rank === rank));
  return order.flatMap((label) => {
    const isFree = (at: Point) => {
      const box = boxAt(at, label.size);
      return isWithin(box, limits) && space.isFree(box);
    };
    const at = label.places.find(isFree) ?? (label.rank === "chosen" ? label.places[0] : undefined);
    if (!at) return [];
    const box = boxAt(at, label.size);
    space.take(box);
    return [{ ...label, at, box }];
  });
}

/** A box of this whole size around its middle. */
export const boxAt = ({ x, y }: Point, size: Point): Box => ({
  left: x - size.x / 2,
  top: y - size.y / 2,
  right: x + size.x / 2,
  bottom: y + size.y / 2,
});

/** Middles for words beside a thing of `half` its size: below and above, at its sides, at its corners. */
export function around(at: Point, half: Point, size: Point, isAbove = false): Point[] {
  const [beside, off] = [half.x + size.x / 2 + GAP, half.y + size.y / 2 + GAP];
  const below = isAbove ? -off : off;
  const places: [number, number][] = [
    [0, below],
    [0, -below],
    [beside, 0],
    [-beside, 0],
    ...[below, -below].flatMap((y): [number, number][] => [
      [size.x / 2, y],
      [-size.x / 2, y],
    ]),
  ];
  return places.map(([x, y]) => ({ x: at.x + x, y: at.y + y }));
}

const isWithin = (box: Box, limits: Box): boolean =>
  box.left >= limits.left &&
  box.top >= limits.top &&
  box.right <= limits.right &&
  box.bottom <= limits.bottom;

/** About as wide as a word, in pixels of the screen. */
const CELL = 64;
/** More cells than a screen is high. */
const COLUMN = 100_003;
const GAP = 2;
