// The picture of the fabric: layout, camera, pointer and keyboard.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { HostReport } from "../api/types";
import { type Box, nearest, zoom } from "../graph/geometry";
import type { Mode, Positions } from "../graph/layout";
import { LOADS } from "../graph/load";
import { Renderer, type Scene } from "../graph/renderer";
import {
  type Frame,
  type Node,
  graphOf,
  nodeCondition,
  outlet,
  place,
  spots,
  ways,
} from "../graph/scene";
import type { Target } from "../graph/target";
import type { Progress, Task } from "../graph/worker";
import { count, isolated, plural } from "../model/format";
import { monitorPorts } from "../model/policy";
import { rateText } from "../parts/rates";
import { go } from "../parts/route";
import { colours } from "../parts/theme";
import type { Taps } from "./topology-data";
import { usePointer } from "./topology-pointer";

interface PictureProps {
  shape: Frame;
  mode: Mode;
  hosts: HostReport[];
  taps: Taps;
  selected: Target | undefined;
  onSelect(target: Target | undefined): void;
  onNear(switches: string[]): void;
  onGroup(members: string[]): void;
}

export function Picture(props: PictureProps) {
  const { shape, mode, hosts, taps, selected } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const renderer = useRef<Renderer>();
  const [placed, setPlaced] = useState(0);
  const [isBlank, setBlank] = useState(false);
  useEffect(() => {
    const made = new Renderer(canvas.current!, {
      tap: (name) => `${isolated(name)}: ${rateText(name)}`,
    });
    made.onView = () => {
      props.onNear(made.hasDetail ? nearIds(made.visible()) : []);
      setBlank(made.isBlank);
    };
    renderer.current = made;
    // For tests that measure drawing time.
    (canvas.current as unknown as { renderer: Renderer }).renderer = made;
    return () => made.close();
  }, []);
  const isFinal = useLayout(shape, mode, () => setPlaced((n) => n + 1));
  const scene = useMemo(() => sceneOf(shape, hosts, taps), [shape, hosts, taps.reports, placed]);
  useEffect(() => renderer.current?.show(scene), [scene]);
  useFit(renderer, scene, isFinal, placed, selected);
  useEffect(() => {
    if (!renderer.current) return;
    renderer.current.selected = selected;
    follow(renderer.current, selected);
    renderer.current.draw();
  }, [selected]);
  useEffect(() => renderer.current?.restyle(), [colours.value]);
  useCovers(canvas, renderer);
  usePointer(canvas, renderer, {
    onSelect: props.onSelect,
    onOpen: (target) => open(target, renderer.current!, props),
    onNodeMoved: () => renderer.current!.show(sceneOf(shape, hosts, taps)),
  });
  const fabric = `${plural(shape.nodes.length, "node")}, ${plural(shape.edges.length, "link")}`;
  const summary = `${fabric}, ${count(taps.reports.length)} of ${plural(taps.total ?? 0, "TAP")}`;
  return (
    <div class="canvas-box">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        data-placed={placed}
        data-final={isFinal}
        aria-label={`Picture of the fabric: ${summary}. Arrow keys move between nodes, Enter opens one, plus and minus zoom, 0 shows everything. The lists beside the picture have the same contents.`}
        onKeyDown={(event) => onKey(event, renderer.current, selected, props)}
      />
      <Zoom renderer={renderer} />
      <div class="blank" role="status">
        {isBlank && "Nothing of the fabric is here: “All” shows everything."}
      </div>
      <p class="unseen" aria-live="polite">
        {selected && spoken(selected, shape)}
      </p>
      <Legend taps={taps} />
    </div>
  );
}

const nearIds = (nodes: Node[]): string[] =>
  nodes
    .filter((node) => !node.group && node.hosts > 0)
    .slice(0, 30)
    .map((node) => node.id);

function sceneOf(shape: Frame, hosts: HostReport[], taps: Taps): Scene {
  const monitors = taps.reports.flatMap(monitorPorts);
  const keys = new Set(monitors.map((m) => `${m.switch}/${m.port}`));
  const bySwitch = new Map<string, HostReport[]>();
  for (const host of hosts) bySwitch.set(host.switch, [...(bySwitch.get(host.switch) ?? []), host]);
  const known = [...bySwitch].flatMap(([id, list]) => {
    const node = shape.nodes[shape.index.get(id) ?? -1];
    return node && !node.group ? spots(node, list, keys) : [];
  });
  const unique = monitors.filter(
    (m, i) => monitors.findIndex((n) => n.switch === m.switch && n.port === m.port) === i,
  );
  const outlets = unique.flatMap((monitor) => outlet(monitor, shape, known) ?? []);
  return { ...shape, spots: known, outlets, ways: ways(taps.reports, shape, known) };
}

/** Computes the layout when nodes or links appear or disappear; returns whether it is final. */
function useLayout(shape: Frame, mode: Mode, onPlaced: () => void): boolean {
  const worker = useRef<Worker>();
  const [isFinal, setFinal] = useState(false);
  const task = useRef({ id: 0, shape });
  const key = useMemo(() => shapeKey(shape), [shape]);
  task.current.shape = shape;
  useEffect(() => {
    worker.current = new Worker("/layout.js", { type: "module" });
    worker.current.onmessage = ({ data }: MessageEvent<Progress>) => {
      if (data.id !== task.current.id) return;
      place(task.current.shape.nodes, data.positions);
      setFinal(data.isFinal);
      onPlaced();
    };
    return () => worker.current?.terminate();
  }, []);
  useEffect(() => {
    if (shape.nodes.length === 0) return;
    setFinal(false);
    const id = ++task.current.id;
    worker.current?.postMessage({
      id,
      graph: graphOf(shape),
      mode,
      before: before(shape),
    } satisfies Task);
  }, [key, mode]);
  return isFinal;
}

const shapeKey = ({ nodes, edges }: Frame): string =>
  `${nodes.map((n) => (n.hosts > 0 ? `${n.id}+` : n.id)).join()} ${edges.map((e) => `${e.a}-${e.b}`).join()}`;

/** The current positions, if most nodes have one. */
function before({ nodes }: Frame): Positions | undefined {
  const placed = nodes.filter((node) => !Number.isNaN(node.x)).length;
  if (placed < nodes.length / 2) return undefined;
  return Float64Array.from(nodes.flatMap((node) => [node.x, node.y]));
}

/** Shows everything until the user moves the picture or the hosts are shown. */
function useFit(
  renderer: { current: Renderer | undefined },
  scene: Scene,
  isFinal: boolean,
  placed: number,
  selected: Target | undefined,
): void {
  const isMoved = useRef(false);
  const size = scene.nodes.length;
  useEffect(() => {
    isMoved.current = false;
  }, [size === 0]);
  useEffect(() => {
    const made = renderer.current;
    if (!made || size === 0 || placed === 0 || isMoved.current) return;
    made.fit();
    const node =
      selected?.kind === "node" ? scene.nodes[scene.index.get(selected.id) ?? -1] : undefined;
    if (node && size > 30) made.centre(node);
    if (isFinal && scene.spots.length > 0) isMoved.current = true;
    made.canvasMoved = () => (isMoved.current = true);
  }, [placed, isFinal, size, scene.spots.length]);
}

/** Keeps labels clear of elements over the picture. */
function useCovers(
  canvas: { current: HTMLCanvasElement | null },
  renderer: { current: Renderer | undefined },
): void {
  useEffect(() => {
    const box = canvas.current!.parentElement!;
    const covers = [...box.querySelectorAll<HTMLElement>(".legend, .zoom")];
    const look = () => renderer.current?.cover(covers.map(boxOf));
    const observer = new ResizeObserver(look);
    for (const one of [box, ...covers]) observer.observe(one);
    look();
    return () => observer.disconnect();
  }, []);
}

/** The box of an element in its parent. */
const boxOf = ({
  offsetLeft: left,
  offsetTop: top,
  offsetWidth,
  offsetHeight,
}: HTMLElement): Box => ({
  left,
  top,
  right: left + offsetWidth,
  bottom: top + offsetHeight,
});

function Zoom({ renderer }: { renderer: { current: Renderer | undefined } }) {
  const by = (factor: number) => () => zoomBy(renderer.current, factor);
  return (
    <div class="zoom" role="group" aria-label="Zoom">
      <button type="button" aria-label="Zoom in" onClick={by(1.3)}>
        +
      </button>
      <button type="button" aria-label="Zoom out" onClick={by(1 / 1.3)}>
        −
      </button>
      <button type="button" onClick={() => renderer.current?.fit()}>
        All
      </button>
    </div>
  );
}

function zoomBy(made: Renderer | undefined, factor: number): void {
  if (!made) return;
  const middle = { x: made.screen.x / 2, y: made.screen.y / 2 };
  made.camera = zoom(made.camera, made.screen, middle, factor);
  made.canvasMoved();
  made.moved();
}

function Legend({ taps: { reports, total = 0 } }: { taps: Taps }) {
  const left = `${count(reports.length)} of ${count(total)} TAPs, those with problems first`;
  return (
    <ul class="legend" aria-label="Legend">
      {LEGEND.map(([key, words]) => (
        <li key={key}>
          <span class={`key ${key}`} />
          {words}
        </li>
      ))}
      {total > reports.length && <li>{left}</li>}
    </ul>
  );
}

const LEGEND: [string, string][] = [
  ["switch", "switch"],
  ["host", "host"],
  ["outlet", "monitor"],
  ["tap", "copies"],
  ...LOADS.map(({ key, words }): [string, string] => [key, words]),
  ["broken", "lost, or with problems"],
];

/** Opens a group, a switch or a TAP. */
function open(target: Target | undefined, made: Renderer, { onGroup }: PictureProps): void {
  if (target?.kind === "tap") go(["policies", target.name]);
  if (target?.kind !== "node") return;
  const group = made.scene.nodes.find((node) => node.id === target.id)?.group;
  if (group) onGroup(group.members);
  else go(["switches", target.id]);
}

const ARROWS: Record<string, { x: number; y: number }> = {
  ArrowLeft: { x: -1, y: 0 },
  ArrowRight: { x: 1, y: 0 },
  ArrowUp: { x: 0, y: -1 },
  ArrowDown: { x: 0, y: 1 },
};

function onKey(
  event: KeyboardEvent,
  made: Renderer | undefined,
  selected: Target | undefined,
  props: PictureProps,
): void {
  if (!made || event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key];
  if (arrow) step(made, selected, arrow, props);
  else if (event.key === "Enter") open(selected, made, props);
  else if (event.key === "Escape") props.onSelect(undefined);
  else if (event.key === "+" || event.key === "=") zoomBy(made, 1.3);
  else if (event.key === "-") zoomBy(made, 1 / 1.3);
  else if (event.key === "0") made.fit();
  else return;
  event.preventDefault();
}

/** Moves the picture to a selected node that is out of view. */
function follow(made: Renderer, selected: Target | undefined): void {
  if (selected?.kind !== "node") return;
  const node = made.scene.nodes[made.scene.index.get(selected.id) ?? -1];
  const isPlaced = node && !Number.isNaN(node.x);
  if (isPlaced && !made.visible().includes(node)) made.centre(node, made.camera.scale);
}

/** Selects the next node in a direction. */
function step(
  made: Renderer,
  selected: Target | undefined,
  arrow: { x: number; y: number },
  props: PictureProps,
): void {
  const { nodes } = made.scene;
  const from = nodes.findIndex((node) => selected?.kind === "node" && node.id === selected.id);
  const to = nodes[nearest(nodes, from, arrow)];
  if (to) props.onSelect({ kind: "node", id: to.id });
}

/** The selection as text, for screen readers. */
function spoken(target: Target, shape: Frame): string {
  if (target.kind === "tap") return `TAP ${target.name}`;
  if (target.kind === "host") return `host ${target.mac} at switch ${target.switch}`;
  if (target.kind === "link") return `link ${target.key}`;
  const node = shape.nodes[shape.index.get(target.id) ?? -1];
  if (!node) return `switch ${target.id}`;
  const what = node.group ? `group of ${count(node.switches)} switches` : `switch ${node.id}`;
  const links = shape.edges.filter(
    (e) => shape.nodes[e.a] === node || shape.nodes[e.b] === node,
  ).length;
  return `${what}, ${nodeCondition(node).word}, ${plural(node.hosts, "host")}, ${plural(links, "link")}`;
}
