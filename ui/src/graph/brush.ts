// The canvas: draws lines, shapes and text in the colours of the style sheet.
import type { Point } from "./geometry";
import type { Label } from "./labels";

/** Text and its style. */
export type Line = Pick<Label, "words" | "colour" | "px" | "isBold">;

/** Style of a line; `colour` is a CSS variable, as everywhere here. */
interface Stroke {
  colour: string;
  width: number;
  dash?: number[];
  /** Offset of the dash pattern. */
  offset?: number;
}

export class Brush {
  private readonly context: CanvasRenderingContext2D;
  private readonly colours = new Map<string, string>();
  private readonly widths = new Map<string, number>();

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d")!;
  }

  /** Sets the resolution to that of the screen. */
  resize(size: Point): void {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(size.x * ratio);
    this.canvas.height = Math.round(size.y * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** Clears the canvas for a new picture. */
  clear(size: Point): void {
    this.context.clearRect(0, 0, size.x, size.y);
    this.context.lineJoin = "round";
  }

  /** Reads the colours from the style sheet again. */
  restyle(): void {
    this.colours.clear();
  }

  line(points: Point[], { colour, width, dash = [], offset = 0 }: Stroke): void {
    const c = this.context;
    c.strokeStyle = this.colour(colour);
    c.lineWidth = width;
    c.setLineDash(dash);
    c.lineDashOffset = offset;
    // Round ends cost more than all the rest of a thin line with dashes, and are hardly seen.
    c.lineCap = width < ROUND ? "butt" : "round";
    c.beginPath();
    points.forEach((p, i) => (i ? c.lineTo(p.x, p.y) : c.moveTo(p.x, p.y)));
    c.stroke();
    c.setLineDash([]);
  }

  dot(at: Point, radius: number, colour: string): void {
    const c = this.context;
    c.fillStyle = this.colour(colour);
    c.beginPath();
    c.arc(at.x, at.y, radius, 0, 2 * Math.PI);
    c.fill();
  }

  /** A ring around the selection. */
  ring(at: Point, radius: number): void {
    const c = this.context;
    c.strokeStyle = this.colour("accent");
    c.lineWidth = 2.5;
    c.beginPath();
    c.arc(at.x, at.y, radius, 0, 2 * Math.PI);
    c.stroke();
  }

  /** A diamond with a light outline. */
  diamond(at: Point, radius: number, colour: string): void {
    const c = this.context;
    c.fillStyle = this.colour(colour);
    c.strokeStyle = this.colour("back");
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(at.x, at.y - radius);
    c.lineTo(at.x + radius, at.y);
    c.lineTo(at.x, at.y + radius);
    c.lineTo(at.x - radius, at.y);
    c.closePath();
    c.stroke();
    c.fill();
  }

  /** A box of half size `half` around `at`, with an outline if `line` is given. */
  box(at: Point, half: Point, fill: string, line?: Stroke): void {
    const c = this.context;
    c.fillStyle = this.colour(fill);
    c.beginPath();
    c.roundRect(at.x - half.x, at.y - half.y, 2 * half.x, 2 * half.y, Math.min(half.y, 6));
    c.fill();
    if (!line) return;
    c.strokeStyle = this.colour(line.colour);
    c.lineWidth = line.width;
    c.stroke();
  }

  text({ words, colour, px, isBold }: Line, at: Point): void {
    this.setFont(px, isBold);
    this.context.fillStyle = this.colour(colour);
    this.context.fillText(words, at.x, at.y);
  }

  /** Text with a light outline, which separates it from the lines below. */
  label(line: Line, at: Point): void {
    const c = this.context;
    this.setFont(line.px, line.isBold);
    c.strokeStyle = this.colour("back");
    c.lineWidth = 4;
    c.strokeText(line.words, at.x, at.y);
    this.text(line, at);
  }

  /** Width of text in pixels. */
  width(words: string, px: number, isBold: boolean): number {
    const key = `${px}${isBold} ${words}`;
    let width = this.widths.get(key);
    if (width === undefined) {
      this.setFont(px, isBold);
      width = this.context.measureText(words).width;
      // Rates change every second, so old widths are useless.
      if (this.widths.size >= MOST_WIDTHS) this.widths.clear();
      this.widths.set(key, width);
    }
    return width;
  }

  private setFont(px: number, isBold: boolean): void {
    const c = this.context;
    c.font = `${isBold ? "600 " : ""}${px}px system-ui, sans-serif`;
    c.textAlign = "center";
    c.textBaseline = "middle";
  }

  private colour(name: string): string {
    let colour = this.colours.get(name);
    if (colour === undefined) {
      colour = getComputedStyle(this.canvas).getPropertyValue(`--${name}`).trim() || "#888";
      this.colours.set(name, colour);
    }
    return colour;
  }
}

const MOST_WIDTHS = 5000;
/** Lines from this width on have round ends. */
const ROUND = 3;
