// The pointer on the picture: one drags the picture or a node, two zoom, a click selects.
import { useEffect, useRef } from "preact/hooks";
import { type Point, along, distance, zoom } from "../graph/geometry";
import type { Renderer } from "../graph/renderer";
import type { Node } from "../graph/scene";
import { type Target, isSame } from "../graph/target";

interface Actions {
  onSelect(target: Target | undefined): void;
  onOpen(target: Target | undefined): void;
  /** A node has been dragged. */
  onNodeMoved(): void;
}

export function usePointer(
  canvas: { current: HTMLCanvasElement | null },
  renderer: { current: Renderer | undefined },
  actions: Actions,
): void {
  const latest = useRef(actions);
  latest.current = actions;
  useEffect(() => {
    const pointers = new Pointers(canvas.current!, renderer.current!, () => latest.current);
    return () => pointers.close();
  }, []);
}

/** The pointers that are down, and what they move. */
class Pointers {
  private readonly down = new Map<number, Point>();
  private readonly events = new AbortController();
  /** Whether this is more than a click. */
  private hasMoved = false;
  /** The node that is dragged. */
  private held: Node | undefined;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly made: Renderer,
    private readonly actions: () => Actions,
  ) {
    this.on("pointerdown", (event) => this.handleDown(event));
    this.on("pointermove", (event) => this.handleMove(event));
    this.on("pointerup", (event) => this.handleUp(event));
    this.on("pointercancel", (event) => void this.down.delete(event.pointerId));
    this.on("wheel", (event) => this.handleWheel(event));
    this.on("dblclick", (event) => actions().onOpen(made.hit(pointOf(event))));
  }

  close(): void {
    this.events.abort();
  }

  private on<K extends keyof HTMLElementEventMap>(
    name: K,
    handle: (event: HTMLElementEventMap[K]) => void,
  ): void {
    // Not passive, so that the wheel does not scroll the page.
    const options = { signal: this.events.signal, passive: false };
    this.canvas.addEventListener(name, handle, options);
  }

  private handleDown(event: PointerEvent): void {
    this.canvas.setPointerCapture(event.pointerId);
    this.down.set(event.pointerId, pointOf(event));
    const hit = this.down.size === 1 ? this.made.hit(pointOf(event), slackOf(event)) : undefined;
    const { nodes, index } = this.made.scene;
    this.held = hit?.kind === "node" ? nodes[index.get(hit.id) ?? -1] : undefined;
    this.hasMoved = this.down.size > 1;
  }

  private handleMove(event: PointerEvent): void {
    const [from, to] = [this.down.get(event.pointerId), pointOf(event)];
    if (!from) return this.hover(to);
    if (!this.hasMoved && distance(from, to) < CLICK) return;
    this.hasMoved = true;
    this.down.set(event.pointerId, to);
    const [fixed] = [...this.down].flatMap(([id, p]) => (id === event.pointerId ? [] : [p]));
    if (fixed) this.pinch(from, to, fixed);
    else this.drag({ x: to.x - from.x, y: to.y - from.y });
    this.made.canvasMoved();
  }

  private handleUp(event: PointerEvent): void {
    if (this.down.delete(event.pointerId) && !this.hasMoved)
      this.actions().onSelect(this.made.hit(pointOf(event), slackOf(event)));
  }

  private handleWheel(event: WheelEvent): void {
    event.preventDefault();
    this.zoom(pointOf(event), Math.exp(-event.deltaY * 0.0015));
    this.made.canvasMoved();
  }

  /** Moves the held node, or the picture. */
  private drag(by: Point): void {
    const { made, held } = this;
    const { x, y, scale } = made.camera;
    if (!held) {
      made.camera = { x: x - by.x / scale, y: y - by.y / scale, scale };
      return made.moved();
    }
    held.x += by.x / scale;
    held.y += by.y / scale;
    this.actions().onNodeMoved();
  }

  /** One of two fingers moves: what is between them stays there. */
  private pinch(from: Point, to: Point, fixed: Point): void {
    const [before, after] = [along(from, fixed, 0.5), along(to, fixed, 0.5)];
    this.held = undefined;
    this.drag({ x: after.x - before.x, y: after.y - before.y });
    this.zoom(after, distance(to, fixed) / Math.max(distance(from, fixed), 1));
  }

  private zoom(at: Point, factor: number): void {
    this.made.camera = zoom(this.made.camera, this.made.screen, at, factor);
    this.made.moved();
  }

  private hover(at: Point): void {
    const { made, canvas } = this;
    const target = made.hit(at);
    if (isSame(target, made.hovered) || (!target && !made.hovered)) return;
    made.hovered = target;
    canvas.style.cursor = target ? "pointer" : "";
    made.draw();
  }
}

const pointOf = (event: MouseEvent): Point => ({ x: event.offsetX, y: event.offsetY });

/** A finger is less exact than a mouse. */
const slackOf = (event: PointerEvent): number => (event.pointerType === "touch" ? 10 : 0);

/** Movements shorter than this many pixels are clicks. */
const CLICK = 4;
