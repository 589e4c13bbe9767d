// Places labels so that none covers another label or a node. Labels are placed in order of rank; a
// label without a free place is left out.
import { type Box, type Point, overlap } from "./geometry";

/** Text to be placed. */
export interface Label {
  words: string;
  /** Name of a CSS variable. */
  colour: string;
  px: number;
  isBold: boolean;
  rank: Rank;
  size: Point;
  /** Possible centres, best first. */
  places: Point[];
}

/** A placed label. */
export interface Placed extends Label {
  at: Point;
  box: Box;
}

/** Ranks in the order of placement. */
export const RANKS = ["chosen", "monitor", "tap", "lost", "switch", "host", "load"] as const;
export type Rank = (typeof RANKS)[number];

/** Occupied boxes in a grid, so that a lookup tests few of them. */
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

  /** Whether nothing occupies the box, except perhaps `own`. */
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
 * Places labels in free space within `limits`; each placed label occupies its box. The selected
 * label is always placed, if necessary over others.
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

/** A box of full size `size` around its centre. */
export const boxAt = ({ x, y }: Point, size: Point): Box => ({
  left: x - size.x / 2,
  top: y - size.y / 2,
  right: x + size.x / 2,
  bottom: y + size.y / 2,
});

/**
 * Centres for text beside an object of half size `half`: below and above, left and right, corners.
 */
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

/** Size of a grid cell in pixels: about the width of a word. */
const CELL = 64;
/** More than the number of cells in a column of any screen. */
const COLUMN = 100_003;
const GAP = 2;
