// Points and lines, and hit testing.

export interface Point {
  x: number;
  y: number;
}

export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** View of the picture: `scale` is pixels per unit, `x` and `y` are the centre. */
export interface Camera extends Point {
  scale: number;
}

export const SCALE_LEAST = 0.02;
export const SCALE_MOST = 4;

/** Converts picture coordinates to screen coordinates. */
export function toScreen(camera: Camera, size: Point, p: Point): Point {
  return {
    x: (p.x - camera.x) * camera.scale + size.x / 2,
    y: (p.y - camera.y) * camera.scale + size.y / 2,
  };
}

/** Converts screen coordinates to picture coordinates. */
export function toPicture(camera: Camera, size: Point, p: Point): Point {
  return {
    x: (p.x - size.x / 2) / camera.scale + camera.x,
    y: (p.y - size.y / 2) / camera.scale + camera.y,
  };
}

/** Zooms by `factor`, with `at` on the screen as the fixed point. */
export function zoom(camera: Camera, size: Point, at: Point, factor: number): Camera {
  const scale = Math.min(SCALE_MOST, Math.max(SCALE_LEAST, camera.scale * factor));
  const fixed = toPicture(camera, size, at);
  return {
    scale,
    x: fixed.x - (at.x - size.x / 2) / scale,
    y: fixed.y - (at.y - size.y / 2) / scale,
  };
}

/** A camera that shows the whole box with a margin; `most` limits the scale for small boxes. */
export function fit(box: Box, size: Point, margin: number, most = 1.5): Camera {
  const width = Math.max(box.right - box.left, 1) + 2 * margin;
  const height = Math.max(box.bottom - box.top, 1) + 2 * margin;
  const scale = Math.min(size.x / width, size.y / height, most);
  return {
    x: (box.left + box.right) / 2,
    y: (box.top + box.bottom) / 2,
    scale: Math.max(scale, SCALE_LEAST),
  };
}

/** The bounding box of points. */
export function bounds(points: Iterable<Point>): Box {
  const box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  for (const { x, y } of points) {
    box.left = Math.min(box.left, x);
    box.top = Math.min(box.top, y);
    box.right = Math.max(box.right, x);
    box.bottom = Math.max(box.bottom, y);
  }
  return box.left <= box.right ? box : { left: 0, top: 0, right: 0, bottom: 0 };
}

/** Whether two boxes overlap by more than an edge. */
export const overlap = (a: Box, b: Box): boolean =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/**
 * The smallest scale at which boxes of `size` pixels around the points do not overlap, except for a
 * share `tight` of them, so that a few close ones do not shrink all others.
 */
export function roomyScale(points: Point[], size: Point, tight = 0.1): number {
  const all = points.filter((p) => Number.isFinite(p.x + p.y)).sort((a, b) => a.x - b.x);
  const gaps = all.map((_, i) => nearestGap(all, i, size)).sort((a, b) => a - b);
  const gap = gaps[Math.floor(gaps.length * tight)] ?? Infinity;
  return 1 / gap;
}

/** How many boxes fit between a point and its nearest neighbour; `sorted` is by `x`. */
function nearestGap(sorted: Point[], index: number, size: Point): number {
  const { x, y } = sorted[index]!;
  let least = Infinity;
  for (const step of [-1, 1]) {
    for (let i = index + step; sorted[i]; i += step) {
      const across = Math.abs(sorted[i]!.x - x) / size.x;
      if (across >= least) break;
      least = Math.min(least, Math.max(across, Math.abs(sorted[i]!.y - y) / size.y));
    }
  }
  return least;
}

/** The point at fraction `t` of the line from `a` to `b`. */
export const along = (a: Point, b: Point, t: number): Point => ({
  x: a.x + (b.x - a.x) * t,
  y: a.y + (b.y - a.y) * t,
});

export const distance = (a: Point, b: Point): number => Math.hypot(a.x - b.x, a.y - b.y);

/** Distance of a point from a line segment. */
export function distanceTo(p: Point, a: Point, b: Point): number {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const square = dx * dx + dy * dy;
  const along = square === 0 ? 0 : ((p.x - a.x) * dx + (p.y - a.y) * dy) / square;
  const t = Math.min(1, Math.max(0, along));
  return Math.hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

/** The part of the line from `a` to `b` that is inside `box` (Liang and Barsky), if any. */
export function clip(a: Point, b: Point, box: Box): [Point, Point] | undefined {
  let [from, to] = [0, 1];
  for (const [step, room] of [
    [a.x - b.x, a.x - box.left],
    [b.x - a.x, box.right - a.x],
    [a.y - b.y, a.y - box.top],
    [b.y - a.y, box.bottom - a.y],
  ] as const) {
    if (step === 0 && room < 0) return undefined;
    if (step < 0) from = Math.max(from, room / step);
    if (step > 0) to = Math.min(to, room / step);
  }
  return from < to ? [along(a, b, from), along(a, b, to)] : undefined;
}

/**
 * A path parallel to `points`, `offset` to its right, so that TAPs on one link lie side by side.
 */
export function beside(points: Point[], offset: number): Point[] {
  const way = points.filter(
    (p, i) => i === 0 || Math.hypot(p.x - points[i - 1]!.x, p.y - points[i - 1]!.y) > 1e-6,
  );
  return way.map((p, i) => {
    const before = normal(way[i - 1] ?? p, way[i - 1] ? p : (way[i + 1] ?? p));
    const after = normal(way[i + 1] ? p : (way[i - 1] ?? p), way[i + 1] ?? p);
    const sum = { x: before.x + after.x, y: before.y + after.y };
    // The joint is on the bisector of the angle, at a limited distance where the angle is sharp.
    const square = sum.x * sum.x + sum.y * sum.y;
    const reach = square < 1e-6 ? 0 : Math.min(2 / square, 1.5);
    const flat = square < 1e-6 ? before : { x: sum.x * reach, y: sum.y * reach };
    return { x: p.x + flat.x * offset, y: p.y + flat.y * offset };
  });
}

/** The unit vector to the right of the direction from `a` to `b`. */
function normal(a: Point, b: Point): Point {
  const len = Math.hypot(b.x - a.x, b.y - a.y);
  return len === 0 ? { x: 0, y: 0 } : { x: -(b.y - a.y) / len, y: (b.x - a.x) / len };
}

/** Offset of lane `index` of `count` parallel lanes, which are `gap` apart and centred on zero. */
export const lane = (index: number, count: number, gap: number): number =>
  (index - (count - 1) / 2) * gap;

/** The index of the nearest point in the direction of an arrow key; -1 if there is none. */
export function nearest(points: Point[], from: number, direction: Point): number {
  const origin = points[from];
  if (!origin) return points.length > 0 ? 0 : -1;
  let [best, least] = [-1, Infinity];
  points.forEach((p, index) => {
    const [dx, dy] = [p.x - origin.x, p.y - origin.y];
    const along = dx * direction.x + dy * direction.y;
    const across = Math.abs(dx * direction.y - dy * direction.x);
    if (index === from || along <= 0 || across > along * 2) return;
    const cost = along + across * 2;
    if (cost < least) [best, least] = [index, cost];
  });
  return best;
}
