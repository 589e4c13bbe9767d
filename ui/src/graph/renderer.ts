// Draws the scene on a canvas: only when something changed, and only what is seen.
//
// The level of detail follows the scale: dots, then boxes, then names and loads, then hosts.
import { bitRate, count, latency } from "../model/format";
import { loadColour } from "./load";
import type { Tone } from "../model/policy";
import {
  type Camera,
  type Point,
  bounds,
  distanceTo,
  fit,
  lane,
  toPicture,
  toScreen,
} from "./geometry";
import type { Edge, Frame, Node, Outlet, Spot, Way } from "./scene";

/** What the picture shows. */
export interface Scene extends Frame {
  spots: Spot[];
  outlets: Outlet[];
  ways: Way[];
}

/** What was hit, or is selected. */
export type Target =
  | { kind: "node"; id: string }
  | { kind: "link"; key: string }
  | { kind: "host"; mac: string; switch: string }
  | { kind: "tap"; name: string };

export interface Labels {
  /** A TAP's rate and drops, beside its line. */
  tap(name: string): string;
}

export const EMPTY: Scene = {
  nodes: [],
  edges: [],
  index: new Map(),
  spots: [],
  outlets: [],
  ways: [],
};

export class Renderer {
  camera: Camera = { x: 0, y: 0, scale: 1 };
  selected: Target | undefined;
  hovered: Target | undefined;
  scene: Scene = EMPTY;
  /** How long the last picture took, in milliseconds. */
  drawMs = 0;
  /** Told whenever the camera or the size changed. */
  onView: () => void = () => {};
  /** Told when the reader moved the picture. */
  canvasMoved: () => void = () => {};

  private size: Point = { x: 1, y: 1 };
  private frame = 0;
  private colours = new Map<string, string>();
  private dash = 0;
  private isMarked = false;
  private hasNames = false;
  private hasLoads = false;
  /** Between the two nearest nodes, in units of the picture. */
  private gap = 0;
  private readonly context: CanvasRenderingContext2D;
  private readonly observer: ResizeObserver;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly labels: Labels,
  ) {
    this.context = canvas.getContext("2d")!;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas);
    this.resize();
  }

  /** Shows another scene, or the same one after a change. */
  show(scene: Scene): void {
    this.scene = scene;
    if (scene.nodes.length <= FEW) this.gap = smallestGap(scene.nodes);
    this.animate();
    this.draw();
  }

  /** Looks at everything. */
  fit(): void {
    // The legend covers the lowest part.
    const free = { x: this.size.x, y: this.size.y - LEGEND };
    this.camera = fit(bounds([...this.scene.nodes, ...this.scene.spots]), free, 90);
    this.camera.y += LEGEND / 2 / this.camera.scale;
    this.moved();
  }

  /** Looks at one node from near. */
  centre(p: Point, scale = Math.max(this.camera.scale, DETAIL)): void {
    this.camera = { x: p.x, y: p.y, scale };
    this.moved();
  }

  moved(): void {
    this.onView();
    this.draw();
  }

  /** Draws with the next frame of the browser. */
  draw(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      const start = performance.now();
      this.paint();
      this.drawMs = performance.now() - start;
      if (!this.isMarked && this.scene.nodes.length > 0) {
        this.isMarked = true;
        performance.mark("fabric drawn");
      }
    });
  }

  /** Reads the colours of the style sheet again. */
  restyle(): void {
    this.colours.clear();
    this.draw();
  }

  close(): void {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearInterval(this.timer);
  }

  toPicture = (p: Point): Point => toPicture(this.camera, this.size, p);
  get screen(): Point {
    return this.size;
  }

  /** Nodes on the screen. */
  visible(): Node[] {
    return this.scene.nodes.filter((node) => this.isSeen(this.at(node), 80));
  }

  get hasDetail(): boolean {
    return this.camera.scale >= DETAIL;
  }

  /** What is at a point of the screen: hosts before nodes before TAPs before links. */
  hit(p: Point): Target | undefined {
    const near = (q: Point, reach: number) => {
      const at = this.at(q);
      return Math.hypot(at.x - p.x, at.y - p.y) <= reach;
    };
    const spot = this.hasDetail && this.scene.spots.find((s) => near(s, 9));
    if (spot) return { kind: "host", mac: spot.host.mac, switch: spot.host.switch };
    const node = this.scene.nodes.find((n) => this.inNode(n, p));
    if (node) return { kind: "node", id: node.id };
    const way = this.scene.ways.find((w) => this.onLine(w.points, p, 5));
    if (way) return { kind: "tap", name: way.report.policy.name };
    const edge = this.scene.edges.find((e) => this.onLine(this.ends(e), p, 5));
    return edge && { kind: "link", key: edgeKey(edge) };
  }

  private inNode(node: Node, p: Point): boolean {
    const at = this.at(node);
    const { x, y } = this.nodeSize(node);
    return Math.abs(p.x - at.x) <= Math.max(x, 6) && Math.abs(p.y - at.y) <= Math.max(y, 6);
  }

  private onLine(points: Point[], p: Point, reach: number): boolean {
    const screen = points.map((q) => this.at(q));
    return screen.some((q, i) => i > 0 && distanceTo(p, screen[i - 1]!, q) <= reach);
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    this.size = { x: Math.max(clientWidth, 1), y: Math.max(clientHeight, 1) };
    this.canvas.width = Math.round(this.size.x * ratio);
    this.canvas.height = Math.round(this.size.y * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.moved();
  }

  /** Dashes of TAPs move while copies flow, unless the reader wants no motion. */
  private animate(): void {
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const flows = !isStill && this.scene.ways.length > 0 && this.scene.ways.length <= MOST_MOVING;
    if (flows === (this.timer !== undefined)) return;
    clearInterval(this.timer);
    this.timer = undefined;
    if (flows) {
      this.timer = setInterval(() => {
        this.dash = (this.dash + 1) % DASH_LENGTH;
        if (!document.hidden) this.draw();
      }, DASH_MS);
    }
  }

  private paint(): void {
    const { context: c, size } = this;
    const seen = this.visible().length;
    const { scale } = this.camera;
    const isRoomy = this.gap * scale >= WIDTH_OF_NAME || scale >= DETAIL;
    this.hasNames = this.scene.nodes.length <= FEW ? isRoomy : scale >= NAMES;
    this.hasLoads = this.hasNames && seen <= FEW / 2;
    c.clearRect(0, 0, size.x, size.y);
    c.lineCap = "round";
    c.lineJoin = "round";
    for (const edge of this.scene.edges) this.paintEdge(edge);
    if (this.hasDetail) this.paintHostLines();
    for (const way of this.scene.ways) this.paintWay(way);
    this.scene.edges.forEach((edge, index) => this.paintLoad(edge, index));
    for (const node of this.scene.nodes) this.paintNode(node);
    if (this.hasDetail) this.scene.spots.forEach((spot) => this.paintSpot(spot));
    this.paintOutlets();
    for (const way of this.scene.ways) this.paintWayLabel(way);
  }

  private paintEdge(edge: Edge): void {
    const [a, b] = this.ends(edge).map((p) => this.at(p)) as [Point, Point];
    if (!this.lineIsSeen(a, b)) return;
    const { link } = edge;
    const isChosen = this.isChosen({ kind: "link", key: edgeKey(edge) });
    const c = this.context;
    const usual = link.is_up ? loadColour(link.bits_per_second) : "bad";
    c.strokeStyle = this.colour(isChosen ? "accent" : usual);
    c.lineWidth = (isChosen ? 2 : 0) + loadWidth(link.bits_per_second ?? 0, this.camera.scale);
    c.setLineDash(!link.is_up ? [3, 5] : link.is_tree === false ? [6, 4] : []);
    this.stroke([a, b]);
    c.setLineDash([]);
  }

  /** Not all at the middles of their links, where those of a fabric cross. */
  private paintLoad(edge: Edge, index: number): void {
    const isChosen = this.isChosen({ kind: "link", key: edgeKey(edge) });
    if (!this.hasLoads && !isChosen) return;
    const [a, b] = this.ends(edge).map((p) => this.at(p)) as [Point, Point];
    const { link } = edge;
    const parts: string[] = [];
    if (!link.is_up) parts.push("down");
    if (link.is_up && link.bits_per_second != null) parts.push(bitRate(link.bits_per_second));
    if (link.latency_ns != null && isChosen) parts.push(`≤ ${latency(link.latency_ns)}`);
    if (parts.length === 0 || Math.hypot(b.x - a.x, b.y - a.y) < 110) return;
    const colour = this.colour(link.is_up ? "muted" : "bad");
    const t = 0.34 + (index % 4) * 0.1;
    const at = { x: a.x + (b.x - a.x) * t, y: a.y + (b.y - a.y) * t };
    this.text(parts.join(", "), at, colour, 11, true);
  }

  private paintHostLines(): void {
    const c = this.context;
    c.strokeStyle = this.colour("line");
    c.lineWidth = 1;
    for (const spot of this.scene.spots) {
      const node = this.scene.nodes[this.scene.index.get(spot.host.switch) ?? -1];
      if (node) this.stroke([this.at(node), this.at(spot)]);
    }
  }

  private paintSpot(spot: Spot): void {
    const at = this.at(spot);
    if (!this.isSeen(at, 20)) return;
    const { host } = spot;
    const isChosen = this.isChosen({ kind: "host", mac: host.mac, switch: host.switch });
    const c = this.context;
    c.fillStyle = this.colour(spot.isMonitor ? "tap" : "host");
    c.beginPath();
    c.arc(at.x, at.y, isChosen ? 7 : 5, 0, 2 * Math.PI);
    c.fill();
    if (isChosen) this.ring(at, 10);
    if (this.camera.scale < NAMES_OF_HOSTS && !isChosen) return;
    const name = host.addresses[0] ?? `…${host.mac.slice(-8)}`;
    const node = this.scene.nodes[this.scene.index.get(host.switch) ?? -1] ?? spot;
    const below = spot.y >= node.y ? 16 : -15;
    this.text(name, { x: at.x, y: at.y + below }, this.colour("text"), 11, true);
  }

  private paintNode(node: Node): void {
    const at = this.at(node);
    if (!this.isSeen(at, 90)) return;
    const { x, y } = this.nodeSize(node);
    const isChosen = this.isChosen({ kind: "node", id: node.id });
    const c = this.context;
    const isDot = x <= 4;
    const fill = node.isConnected ? (node.group ? "group" : "node") : "bad-fill";
    c.fillStyle = this.colour(isDot ? (node.isConnected ? "node-line" : "bad") : fill);
    c.strokeStyle = this.colour(!node.isConnected ? "bad" : isChosen ? "accent" : "node-line");
    c.lineWidth = isChosen ? 3 : 1.5;
    c.beginPath();
    c.roundRect(at.x - x, at.y - y, 2 * x, 2 * y, Math.min(y, 6));
    c.fill();
    if (!isDot || isChosen || !node.isConnected) c.stroke();
    if (this.hasNames) this.paintName(node, at);
    else if (node.group && x >= 12)
      this.text(count(node.switches), at, this.colour("text"), 10, false);
  }

  private paintName(node: Node, at: Point): void {
    const isBad = !node.isConnected;
    const name = node.group ? `${node.switches} switches` : node.id;
    const colour = this.colour(isBad ? "bad" : "text");
    this.text(
      isBad && !node.group ? `${name} lost` : name,
      { x: at.x, y: at.y - 5 },
      colour,
      12,
      false,
      true,
    );
    const ports = node.member ? `${count(node.member.ports)} ports` : "no hosts";
    const hosts =
      node.hosts === 0 ? ports : node.hosts === 1 ? "1 host" : `${count(node.hosts)} hosts`;
    const more = node.monitors ? `, ${node.monitors} mon.` : "";
    this.text(
      hosts + more,
      { x: at.x, y: at.y + 9 },
      this.colour(isBad ? "bad" : "muted"),
      10.5,
      false,
    );
  }

  private paintOutlets(): void {
    const c = this.context;
    for (const outlet of this.scene.outlets) {
      const at = this.at(outlet);
      if (!this.isSeen(at, 20)) continue;
      const r = Math.min(9, Math.max(4, 9 * this.camera.scale));
      c.fillStyle = this.colour("tap");
      c.strokeStyle = this.colour("back");
      c.lineWidth = 2;
      c.beginPath();
      c.moveTo(at.x, at.y - r);
      c.lineTo(at.x + r, at.y);
      c.lineTo(at.x, at.y + r);
      c.lineTo(at.x - r, at.y);
      c.closePath();
      c.stroke();
      c.fill();
      const name = outlet.monitor.name || `port ${outlet.monitor.port}`;
      if (this.hasNames) {
        this.text(name, { x: at.x, y: at.y - r - 9 }, this.colour("text"), 11, true, true);
      }
    }
  }

  private paintWay({ points, tone, report }: Way): void {
    const screen = points.map((p) => this.at(p));
    const isChosen = this.isChosen({ kind: "tap", name: report.policy.name });
    const c = this.context;
    c.strokeStyle = this.colour("back");
    c.lineWidth = isChosen ? 8 : 5;
    this.stroke(screen);
    c.strokeStyle = this.colour(TAP_COLOURS[tone]);
    c.lineWidth = isChosen ? 4.5 : 2.5;
    c.setLineDash([9, 7]);
    c.lineDashOffset = -this.dash;
    this.stroke(screen);
    c.setLineDash([]);
  }

  private paintWayLabel({ points, tone, report }: Way): void {
    const isChosen = this.isChosen({ kind: "tap", name: report.policy.name });
    const isRoomy = this.scene.ways.length <= MOST_LABELS && this.hasNames;
    if (!isRoomy && !isChosen) return;
    // Those at one monitor stand below each other, or above, where there are no hosts.
    const end = points[points.length - 1]!;
    const together = this.scene.ways.filter((way) =>
      isNear(way.points[way.points.length - 1]!, end),
    );
    const order = together.findIndex((way) => way.report === report);
    const { x, y } = this.at(together[0]?.points.slice(-1)[0] ?? end);
    const from = points[points.length - 2] ?? end;
    const shift = end.y > from.y + 25 ? 34 + order * 15 : -38 - order * 15;
    const colour = this.colour(TAP_COLOURS[tone]);
    this.text(this.labels.tap(report.policy.name), { x, y: y + shift }, colour, 11.5, true, true);
  }

  private text(
    words: string,
    at: Point,
    colour: string,
    px: number,
    hasBack: boolean,
    isBold = false,
  ): void {
    const c = this.context;
    c.font = `${isBold ? "600 " : ""}${px}px system-ui, sans-serif`;
    c.textAlign = "center";
    c.textBaseline = "middle";
    if (hasBack) {
      c.strokeStyle = this.colour("back");
      c.lineWidth = 4;
      c.strokeText(words, at.x, at.y);
    }
    c.fillStyle = colour;
    c.fillText(words, at.x, at.y);
  }

  private ring(at: Point, radius: number): void {
    this.context.strokeStyle = this.colour("accent");
    this.context.lineWidth = 2.5;
    this.context.beginPath();
    this.context.arc(at.x, at.y, radius, 0, 2 * Math.PI);
    this.context.stroke();
  }

  private stroke(points: Point[]): void {
    this.context.beginPath();
    points.forEach((p, i) => (i ? this.context.lineTo(p.x, p.y) : this.context.moveTo(p.x, p.y)));
    this.context.stroke();
  }

  /** The ends of a link; parallels are a little apart. */
  private ends({ a, b, slot, slots }: Edge): [Point, Point] {
    const [from, to] = [this.scene.nodes[a]!, this.scene.nodes[b]!];
    const offset = lane(slot, slots, 8) * (a < b ? 1 : -1);
    if (offset === 0) return [from, to];
    const len = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const [dx, dy] = [(-(to.y - from.y) / len) * offset, ((to.x - from.x) / len) * offset];
    return [
      { x: from.x + dx, y: from.y + dy },
      { x: to.x + dx, y: to.y + dy },
    ];
  }

  /** Half the width and height of a node on the screen. */
  private nodeSize(node: Node): Point {
    const { scale } = this.camera;
    const grow = node.group ? 1 + Math.log10(node.switches) * 0.25 : 1;
    if (this.hasNames) return { x: 44 * grow, y: 20 * grow };
    const half = Math.min(18, Math.max(2.5, 34 * scale)) * grow;
    return { x: half, y: half * 0.7 };
  }

  private at(p: Point): Point {
    return toScreen(this.camera, this.size, p);
  }

  private isSeen({ x, y }: Point, margin: number): boolean {
    return x > -margin && y > -margin && x < this.size.x + margin && y < this.size.y + margin;
  }

  private lineIsSeen(a: Point, b: Point): boolean {
    return (
      Math.max(a.x, b.x) > 0 &&
      Math.min(a.x, b.x) < this.size.x &&
      Math.max(a.y, b.y) > 0 &&
      Math.min(a.y, b.y) < this.size.y
    );
  }

  private isChosen(target: Target): boolean {
    return isSame(target, this.selected) || isSame(target, this.hovered);
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

const isNear = (a: Point, b: Point): boolean => Math.hypot(a.x - b.x, a.y - b.y) < 30;

/** Few nodes: each with each. */
function smallestGap(nodes: Node[]): number {
  let least = Infinity;
  nodes.forEach((a, i) => {
    for (const b of nodes.slice(i + 1)) least = Math.min(least, Math.hypot(a.x - b.x, a.y - b.y));
  });
  return least;
}

/** What tells a link from others. */
export const edgeKey = ({ link: { a, b } }: Edge): string =>
  `${a.switch}/${a.port} – ${b.switch}/${b.port}`;

export function isSame(a: Target | undefined, b: Target | undefined): boolean {
  return a !== undefined && b !== undefined && JSON.stringify(a) === JSON.stringify(b);
}

/** Thicker by the logarithm of the load: 1 Mb/s shows, 100 Gb/s is no beam. */
function loadWidth(bitsPerSecond: number, scale: number): number {
  const load = Math.max(0, Math.log10(bitsPerSecond / 1e5 + 1)) * 0.5;
  return Math.max(0.6, Math.min(1.5, 3 * scale)) + load * Math.min(1, scale * 1.5);
}

const TAP_COLOURS: Record<Tone, string> = { good: "tap", wait: "wait", bad: "bad", plain: "muted" };
const NAMES = 0.55;
/** With so many nodes there is room for words. */
const FEW = 60;
export const DETAIL = 0.8;
const NAMES_OF_HOSTS = 1.05;
const MOST_MOVING = 100;
const MOST_LABELS = 12;
const WIDTH_OF_NAME = 94;
const LEGEND = 40;
const DASH_LENGTH = 16;
const DASH_MS = 60;
