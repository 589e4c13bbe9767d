// Draws the scene on a canvas: only after changes, and only what is visible.
//
// The level of detail follows the scale: dots, then boxes, then cards with loads, then hosts.
// `labels.ts` places the text beside them.
import { count } from "../model/format";
import { Brush, type Line } from "./brush";
import {
  TAP_COLOURS,
  type View,
  hostsOf,
  nameOf,
  ofEdge,
  ofNode,
  ofOutlet,
  ofSpot,
  ofWay,
  oneEach,
} from "./captions";
import { type Label, type Placed, Space, arrange, boxAt } from "./labels";
import { loadColour } from "./load";
import {
  type Box,
  type Camera,
  type Point,
  bounds,
  clip,
  distance,
  distanceTo,
  fit,
  lane,
  roomyScale,
  toScreen,
} from "./geometry";
import {
  type Edge,
  type Frame,
  type Node,
  type Outlet,
  type Spot,
  type Way,
  nodeCondition,
} from "./scene";
import { type Target, edgeKey, isSame } from "./target";

/** Contents of the picture. */
export interface Scene extends Frame {
  spots: Spot[];
  outlets: Outlet[];
  ways: Way[];
}

/** Text from outside the picture. */
export interface Words {
  /** A TAP's rate and drops, shown beside its line. */
  tap(name: string): string;
}

const EMPTY: Scene = {
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
  /** Called when the camera or the size has changed. */
  onView: () => void = () => {};
  /** Called when the user has moved the picture. */
  canvasMoved: () => void = () => {};

  private size: Point = { x: 1, y: 1 };
  /** The camera that shows everything, until the user moves the picture. */
  private whole: Camera | undefined;
  private frame = 0;
  private dash = 0;
  private isMarked = false;
  /** Labels that were placed in the last drawing, and the boxes that they must not cover. */
  placed: Placed[] = [];
  solid: Box[] = [];
  /** Elements over the picture: legend and buttons. */
  private covers: Box[] = [];
  /** Nodes with room for a card. */
  private cards = new Set<Node>();
  /** Half the size of a card, and the scale from which cards do not overlap. */
  private card: Point = { x: 0, y: 0 };
  private cardScale = 0;
  private readonly brush: Brush;
  private readonly observer: ResizeObserver;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly words: Words,
  ) {
    this.brush = new Brush(canvas);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas);
    this.resize();
  }

  /** Shows another scene, or the same one after a change. */
  show(scene: Scene): void {
    this.scene = scene;
    this.measureCards();
    this.animate();
    this.draw();
  }

  /** Sets the areas that labels must avoid. */
  cover(boxes: Box[]): void {
    this.covers = boxes;
    if (this.isWhole) this.fit();
    else this.draw();
  }

  /** Shows everything. */
  fit(): void {
    const [above, below] = this.covered();
    const free = { x: this.size.x - 2 * RIM, y: this.size.y - above - below - 2 * RIM };
    this.camera = fit(
      bounds([...this.scene.nodes, ...this.scene.spots, ...this.scene.outlets]),
      free,
      90,
    );
    this.camera.y += (below - above) / 2 / this.camera.scale;
    this.whole = this.camera;
    this.moved();
  }

  /** How much of the top the buttons cover, and of the bottom the legend. */
  private covered(): [number, number] {
    const isAbove = ({ top, bottom }: Box) => top + bottom < this.size.y;
    const above = this.covers.map((box) => (isAbove(box) ? box.bottom : 0));
    const below = this.covers.map((box) => (isAbove(box) ? 0 : this.size.y - box.top));
    return [Math.max(0, ...above), Math.max(0, ...below)];
  }

  /** Zooms in on one node. */
  centre(p: Point, scale = Math.max(this.camera.scale, DETAIL)): void {
    this.camera = { x: p.x, y: p.y, scale };
    this.moved();
  }

  moved(): void {
    this.onView();
    this.draw();
  }

  /** Draws at the next animation frame. */
  draw(): void {
    this.frame ||= requestAnimationFrame(() => this.drawNow());
  }

  private drawNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.paint();
    if (!this.isMarked && this.scene.nodes.length > 0) {
      this.isMarked = true;
      performance.mark("fabric drawn");
    }
  }

  /** Reads the colours from the style sheet again. */
  restyle(): void {
    this.brush.restyle();
    this.draw();
  }

  close(): void {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearInterval(this.timer);
  }

  get screen(): Point {
    return this.size;
  }

  /** Nodes on the screen. */
  visible(): Node[] {
    return this.scene.nodes.filter((node) => this.isSeen(this.at(node), 80));
  }

  /** Whether the user has moved the whole fabric out of sight. */
  get isBlank(): boolean {
    const middle = { x: this.size.x / 2, y: this.size.y / 2 };
    const reach = Math.hypot(middle.x, middle.y);
    const isNear = (edge: Edge) => this.onLine(this.ends(edge), middle, reach);
    const { nodes, edges, spots, outlets } = this.scene;
    const things = [...nodes, ...outlets, ...(this.hasHosts ? spots : [])];
    const isAnySeen = things.some((p) => this.isSeen(this.at(p), 60));
    return nodes.length > 0 && !isAnySeen && !edges.some(isNear);
  }

  get hasDetail(): boolean {
    return this.camera.scale >= DETAIL;
  }

  /** The object at a point of the screen, or else within `slack` more pixels. */
  hit(p: Point, slack = 0): Target | undefined {
    return this.within(p, 0) ?? (slack > 0 ? this.within(p, slack) : undefined);
  }

  /** Hosts before nodes before TAPs before links. */
  private within(p: Point, slack: number): Target | undefined {
    const near = (q: Point, reach: number) => {
      const at = this.at(q);
      return Math.hypot(at.x - p.x, at.y - p.y) <= reach;
    };
    const spot = this.hasHosts && this.scene.spots.find((s) => near(s, 9 + slack));
    if (spot) return { kind: "host", mac: spot.host.mac, switch: spot.host.switch };
    const node = this.scene.nodes.find((n) => this.inNode(n, p, 6 + slack));
    if (node) return { kind: "node", id: node.id };
    const way = this.scene.ways.find((w) => this.onLine(w.points, p, 5 + slack));
    if (way) return { kind: "tap", name: way.report.policy.name };
    const edge = this.scene.edges.find((e) => this.onLine(this.ends(e), p, 5 + slack));
    return edge && { kind: "link", key: edgeKey(edge) };
  }

  private inNode(node: Node, p: Point, reach: number): boolean {
    const at = this.at(node);
    const { x, y } = this.nodeSize(node);
    return Math.abs(p.x - at.x) <= Math.max(x, reach) && Math.abs(p.y - at.y) <= Math.max(y, reach);
  }

  private onLine(points: Point[], p: Point, reach: number): boolean {
    const screen = points.map((q) => this.at(q));
    return screen.some((q, i) => i > 0 && distanceTo(p, screen[i - 1]!, q) <= reach);
  }

  /** Draws at once, because a canvas is empty after a change of its size. */
  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    this.size = { x: Math.max(clientWidth, 1), y: Math.max(clientHeight, 1) };
    this.brush.resize(this.size);
    if (this.isWhole) this.fit();
    else this.moved();
    this.drawNow();
  }

  /** Whether the picture shows everything because the user has not moved it. */
  private get isWhole(): boolean {
    return this.camera === this.whole;
  }

  /**
   * Moves the dashes of TAPs, unless the user prefers reduced motion or the picture is so large
   * that drawing it would keep the browser busy.
   */
  private animate(): void {
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const { nodes, edges, ways } = this.scene;
    const isSmall = nodes.length + edges.length + ways.length <= MOST_MOVING;
    const flows = !isStill && ways.length > 0 && isSmall;
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
    const { size } = this;
    const space = this.occupied();
    this.brush.clear(size);
    for (const edge of this.scene.edges) this.paintEdge(edge);
    if (this.hasHosts) this.paintHostLines();
    for (const way of this.upwards(this.scene.ways)) this.paintWay(way);
    for (const node of this.scene.nodes) this.paintNode(node);
    if (this.hasHosts) this.scene.spots.forEach((spot) => this.paintSpot(spot));
    for (const outlet of this.scene.outlets) this.paintOutlet(outlet);
    this.placed = arrange(this.captions(), space, boxAt({ x: size.x / 2, y: size.y / 2 }, size));
    // Labels of the highest rank are drawn last, on top.
    for (const label of [...this.placed].reverse()) this.brush.label(label, label.at);
  }

  /**
   * Drawing order: the first paths are on top of the others, and the selected one on top of all.
   */
  private upwards(ways: Way[]): Way[] {
    const isChosen = ({ report }: Way) => this.isChosenTap(report.policy.name);
    return [...ways.filter((way) => !isChosen(way)).reverse(), ...ways.filter(isChosen)];
  }

  /** The areas that labels must not cover. Nodes whose card covers nothing get one. */
  private occupied(): Space {
    const space = new Space();
    const seen = this.visible();
    for (const box of this.covers) space.take(box);
    this.cards.clear();
    const boxes = new Map(seen.map((node) => [node, this.boxOf(node, this.nodeSize(node))]));
    const dots = this.dots();
    for (const box of [...boxes.values(), ...dots]) space.take(box);
    for (const node of this.hasCards ? this.byRank(seen) : []) {
      const card = this.boxOf(node, this.cardSize(node));
      if (!space.isFree(card, boxes.get(node))) continue;
      space.take(card);
      boxes.set(node, card);
      this.cards.add(node);
    }
    this.solid = [...boxes.values(), ...dots];
    return space;
  }

  private byRank(nodes: Node[]): Node[] {
    const isUsual = ({ id }: Node) => Number(!this.isChosen({ kind: "node", id }));
    return nodes.sort((a, b) => isUsual(a) - isUsual(b) || b.monitors - a.monitors);
  }

  /** Hosts and monitors on the screen. */
  private dots(): Box[] {
    const dot = (p: Point, r: number) => boxAt(this.at(p), { x: 2 * r, y: 2 * r });
    const hosts = this.hasHosts ? this.scene.spots.map((spot) => dot(spot, HOST_RADIUS)) : [];
    return [...hosts, ...this.scene.outlets.map((outlet) => dot(outlet, this.outletRadius))].filter(
      ({ left, top }) => this.isSeen({ x: left, y: top }, 20),
    );
  }

  private boxOf(node: Node, half: Point): Box {
    return boxAt(this.at(node), { x: 2 * half.x, y: 2 * half.y });
  }

  /** All labels to be placed. */
  private captions(): Label[] {
    const { spots, outlets, ways } = this.scene;
    const { view, hasWords } = this;
    const isNamed = (node: Node) =>
      !this.cards.has(node) &&
      !this.isInside(node) &&
      ((hasWords && !node.group) ||
        nodeCondition(node).tone !== "good" ||
        this.isChosen({ kind: "node", id: node.id }));
    const taps = oneEach(ways);
    const hasRates = hasWords && taps.length <= MOST_LABELS;
    return [
      ...this.visible()
        .filter(isNamed)
        .flatMap((node) => ofNode(node, view)),
      ...(this.hasDetail ? spots : []).flatMap((spot) => ofSpot(spot, view)),
      ...(hasWords ? outlets : []).flatMap((outlet) => ofOutlet(outlet, view)),
      ...taps
        .filter(({ report }) => hasRates || this.isChosenTap(report.policy.name))
        .flatMap((way) => ofWay(way, this.words.tap(way.report.policy.name), view)),
      ...this.toldLinks().flatMap((edge) => ofEdge(edge, view)),
    ];
  }

  /** Links with a load label: all visible ones if they are few, otherwise the selected one. */
  private toldLinks(): Edge[] {
    const seen = this.hasCards ? this.scene.edges.filter((edge) => this.edgeIsSeen(edge)) : [];
    const isTold = seen.length > 0 && seen.length <= MOST_LOADS;
    return isTold ? seen : this.scene.edges.filter((edge) => this.isChosenLink(edge));
  }

  private readonly view: View = {
    at: (p) => this.at(p),
    isSeen: (p) => this.isSeen(p, 20),
    isChosen: (target) => this.isChosen(target),
    width: (words, px, isBold) => this.brush.width(words, px, isBold),
    half: (node) => this.nodeSize(node),
    ends: (edge) => this.ends(edge),
    node: (id) => this.scene.nodes[this.scene.index.get(id) ?? -1],
  };

  private paintEdge(edge: Edge): void {
    const [a, b] = this.ends(edge).map((p) => this.at(p)) as [Point, Point];
    // Lines far beyond the picture cost as much as what is seen, above all with dashes.
    const seen = clip(a, b, this.frameBox);
    if (!seen) return;
    const { link } = edge;
    const isChosen = this.isChosenLink(edge);
    const usual = link.is_up ? loadColour(link.bits_per_second) : "bad";
    const load = loadWidth(link.bits_per_second ?? 0, this.camera.scale);
    this.brush.line(seen, {
      offset: distance(a, seen[0]),
      colour: isChosen ? "accent" : usual,
      width: (isChosen ? 2 : 0) + load,
      dash: !link.is_up ? [3, 5] : link.is_tree === false && this.isFine ? [6, 4] : [],
    });
  }

  private paintHostLines(): void {
    for (const spot of this.scene.spots) {
      const node = this.view.node(spot.host.switch);
      if (node) this.brush.line([this.at(node), this.at(spot)], { colour: "line", width: 1 });
    }
  }

  private paintSpot(spot: Spot): void {
    const at = this.at(spot);
    if (!this.isSeen(at, 20)) return;
    const { host } = spot;
    const isChosen = this.isChosen({ kind: "host", mac: host.mac, switch: host.switch });
    this.brush.dot(at, isChosen ? 7 : HOST_RADIUS, spot.isMonitor ? "tap" : "host");
    if (isChosen) this.brush.ring(at, 10);
  }

  private paintNode(node: Node): void {
    const at = this.at(node);
    if (!this.isSeen(at, 90)) return;
    const half = this.nodeSize(node);
    const isChosen = this.isChosen({ kind: "node", id: node.id });
    const isDot = half.x <= 4;
    const usual = isDot ? "node-line" : node.group ? "group" : "node";
    const lost = isDot ? "bad" : "bad-fill";
    const line = {
      colour: lineColour(node, isChosen),
      width: isChosen ? 3 : 1.5,
    };
    const hasLine = !isDot || isChosen || line.colour !== "node-line";
    this.brush.box(at, half, node.isConnected ? usual : lost, hasLine ? line : undefined);
    if (this.cards.has(node)) this.paintCard(node, at);
    else if (this.isInside(node)) this.brush.text(inside(node), at);
    else if (node.group && half.x >= 12)
      this.brush.text({ words: count(node.switches), colour: "text", px: 10, isBold: false }, at);
  }

  private paintCard(node: Node, at: Point): void {
    const [name, hosts] = this.linesOf(node);
    this.brush.text(name, { x: at.x, y: at.y - 5 });
    this.brush.text(hosts, { x: at.x, y: at.y + 9 });
  }

  private linesOf(node: Node): [Line, Line] {
    const isBad = !node.isConnected;
    return [
      { words: nameOf(node), px: 12, isBold: true, colour: isBad ? "bad" : "text" },
      { words: hostsOf(node), px: 10.5, isBold: false, colour: isBad ? "bad" : "muted" },
    ];
  }

  private paintOutlet(outlet: Outlet): void {
    const at = this.at(outlet);
    if (this.isSeen(at, 20)) this.brush.diamond(at, this.outletRadius, "tap");
  }

  private paintWay({ points, tone, report }: Way): void {
    const screen = points.map((p) => this.at(p));
    const isChosen = this.isChosenTap(report.policy.name);
    this.brush.line(screen, { colour: "back", width: isChosen ? 8 : 5 });
    this.brush.line(screen, {
      colour: TAP_COLOURS[tone],
      width: isChosen ? 4.5 : 2.5,
      dash: [9, 7],
      offset: -this.dash,
    });
  }

  /** Sets the size of all cards to fit the longest name. */
  private measureCards(): void {
    const { nodes } = this.scene;
    const lines = nodes.flatMap((node) => this.linesOf(node));
    const widths = lines.map(({ words, px, isBold }) => this.brush.width(words, px, isBold));
    const widest = widths.reduce((most, width) => Math.max(most, width), 0);
    this.card = { x: Math.max(44, widest / 2 + 7), y: 20 };
    const grow = nodes.reduce((most, node) => Math.max(most, growth(node)), 1);
    const whole = { x: 2 * this.card.x * grow + 6, y: 2 * this.card.y * grow + 6 };
    this.cardScale = roomyScale(nodes, whole);
  }

  /** The ends of a link; parallel links are slightly apart. */
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
    if (this.cards.has(node)) return this.cardSize(node);
    const half = Math.min(18, Math.max(2.5, 34 * this.camera.scale)) * growth(node);
    return { x: half, y: half * 0.7 };
  }

  private cardSize(node: Node): Point {
    return { x: this.card.x * growth(node), y: this.card.y * growth(node) };
  }

  /** Whether a switch without a card has room for its name. */
  private isInside(node: Node): boolean {
    const { x } = this.nodeSize(node);
    const { words, px, isBold } = inside(node);
    return x >= 10 && !node.group && this.brush.width(words, px, isBold) + 6 <= 2 * x;
  }

  private get hasCards(): boolean {
    return this.camera.scale >= this.cardScale;
  }

  /** Hosts are drawn when zoomed in, and from further away if there are few. */
  private get hasHosts(): boolean {
    const isFew = this.scene.spots.length <= FEW && this.camera.scale >= NAMES;
    return this.hasDetail || isFew;
  }

  /** Whether links are so few, or so near, that dashes can be told from gaps between links. */
  private get isFine(): boolean {
    return this.scene.edges.length <= MOST_MOVING || this.camera.scale >= NAMES;
  }

  /** Whether there is room for the names of ordinary objects. */
  private get hasWords(): boolean {
    return this.hasCards || this.scene.nodes.length <= FEW || this.camera.scale >= NAMES;
  }

  private get outletRadius(): number {
    return Math.min(9, Math.max(4, 9 * this.camera.scale));
  }

  private at(p: Point): Point {
    return toScreen(this.camera, this.size, p);
  }

  /** The canvas and a little more, beyond which the ends of lines are not seen. */
  private get frameBox(): Box {
    const { x, y } = this.size;
    return { left: -BRIM, top: -BRIM, right: x + BRIM, bottom: y + BRIM };
  }

  private isSeen({ x, y }: Point, margin: number): boolean {
    return x > -margin && y > -margin && x < this.size.x + margin && y < this.size.y + margin;
  }

  private edgeIsSeen(edge: Edge): boolean {
    const [a, b] = this.ends(edge);
    return clip(this.at(a), this.at(b), this.frameBox) !== undefined;
  }

  private isChosen(target: Target): boolean {
    return isSame(target, this.selected) || isSame(target, this.hovered);
  }

  private isChosenTap(name: string): boolean {
    return this.isChosen({ kind: "tap", name });
  }

  /** Checks first whether any link is selected: there are many links, and their keys are long. */
  private isChosenLink(edge: Edge): boolean {
    const isAny = this.selected?.kind === "link" || this.hovered?.kind === "link";
    return isAny && this.isChosen({ kind: "link", key: edgeKey(edge) });
  }
}

/** A switch's name in its box. */
const inside = (node: Node): Line => ({
  words: nameOf(node),
  px: 11,
  isBold: true,
  colour: node.isConnected ? "text" : "bad",
});

function lineColour(node: Node, isChosen: boolean): string {
  const { tone } = nodeCondition(node);
  if (tone !== "good") return tone;
  return isChosen ? "accent" : "node-line";
}

/** Groups are drawn larger than switches. */
const growth = (node: Node): number => (node.group ? 1 + Math.log10(node.switches) * 0.25 : 1);

/** Grows with the logarithm of the load, so that both 1 Mb/s and 100 Gb/s are readable. */
function loadWidth(bitsPerSecond: number, scale: number): number {
  const load = Math.max(0, Math.log10(bitsPerSecond / 1e5 + 1)) * 0.5;
  return Math.max(0.6, Math.min(1.5, 3 * scale)) + load * Math.min(1, scale * 1.5);
}

const NAMES = 0.3;
/** Up to this number of objects there is room for text. */
const FEW = 60;
const DETAIL = 0.8;
const MOST_MOVING = 400;
const MOST_LABELS = 12;
const MOST_LOADS = 60;
const HOST_RADIUS = 5;
const RIM = 16;
const BRIM = 8;
const DASH_LENGTH = 16;
const DASH_MS = 60;
