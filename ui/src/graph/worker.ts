// Computes layouts beside the page, so that it stays smooth.
import { Forces, type Graph, type Mode, type Positions, begin } from "./layout";

/** What the page asks for. */
export interface Task {
  id: number;
  graph: Graph;
  mode: Mode;
  /** Where nodes were; NaN for new ones. */
  before?: Positions;
}

/** What it hears, several times for one task. */
export interface Progress {
  id: number;
  positions: Positions;
  isFinal: boolean;
}

let current = 0;

self.onmessage = ({ data: task }: MessageEvent<Task>) => {
  current = task.id;
  const { positions, isFinal } = begin(task.graph, task.mode, task.before);
  tell(task.id, positions, isFinal);
  if (!isFinal) improve(task.id, new Forces(task.graph, positions, task.before !== undefined));
};

/** Steps for as long as a frame lasts, tells, and lets a newer task come in between. */
function improve(id: number, forces: Forces): void {
  const end = performance.now() + FRAME_MS;
  while (!forces.isDone && performance.now() < end) forces.step();
  tell(id, forces.positions, forces.isDone);
  if (!forces.isDone) setTimeout(() => id === current && improve(id, forces));
}

function tell(id: number, positions: Positions, isFinal: boolean): void {
  self.postMessage({ id, positions: positions.slice(), isFinal } satisfies Progress);
}

const FRAME_MS = 60;
