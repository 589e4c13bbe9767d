// Computes layouts in a worker, so that the page stays responsive.
import { Forces, type Graph, type Mode, type Positions, begin } from "./layout";

/** A request of the page. */
export interface Task {
  id: number;
  graph: Graph;
  mode: Mode;
  /** Previous positions; NaN for new nodes. */
  before?: Positions;
}

/** A result; there are several for one task. */
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

/** Computes for one time slice, reports, and yields so that a newer task can take over. */
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
