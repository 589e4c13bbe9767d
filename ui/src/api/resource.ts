// The controller's data as hooks: fetched, refetched after events, with the last error.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get } from "./client";
import { listen, liveness, type Topic } from "./live";

export interface Resource<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** When `data` was received. */
  at: number;
  reload(): void;
}

interface Options<T> {
  /** Event topics that trigger a refetch. */
  topics?: Topic[];
  /** Maximum time between fetches; 0 for no limit. */
  everyMs?: number;
  /** Minimum time between fetches. */
  pauseMs?: number;
  /** How to fetch, if that takes more than one request. */
  ask?: Ask<T>;
}

type Ask<T> = (path: string, signal: AbortSignal) => Promise<T>;

/** The response to `GET path`; nothing is fetched while `path` is `undefined`. */
export function useResource<T>(path: string | undefined, options: Options<T> = {}): Resource<T> {
  const { topics = [], everyMs = 0, pauseMs = PAUSE_MS, ask: how = get } = options;
  const [state, setState] = useState<{ path?: string; data?: T; error?: ApiError; at: number }>({
    at: 0,
  });
  const ask = useRef<() => void>(() => {});
  const wanted = topics.join();

  useEffect(() => {
    if (path === undefined) return setState({ at: 0 });
    const asker = new Asker<T>(path, how, pauseMs, (data, error) => {
      setState((old) => ({
        path,
        data: data ?? (old.path === path && !isGone(error) ? old.data : undefined),
        error,
        at: data === undefined ? old.at : Date.now(),
      }));
    });
    ask.current = () => asker.ask();
    asker.ask();
    const timer =
      everyMs > 0 ? setInterval(() => document.hidden || asker.ask(), everyMs) : undefined;
    const deaf = listen((topic) => {
      if (topic === "again" || wanted.split(",").includes(topic)) asker.ask();
    });
    return () => {
      asker.close();
      clearInterval(timer);
      deaf();
    };
  }, [path, everyMs, wanted]);

  const reload = useCallback(() => ask.current(), []);
  const isMine = state.path === path;
  return {
    data: isMine ? state.data : undefined,
    error: isMine ? state.error : undefined,
    at: state.at,
    reload,
  };
}

/** After 404 the object is gone; after other errors, which may pass, the old data stays useful. */
const isGone = (error: ApiError | undefined): boolean => error?.status === 404;

/** Starts a fetch before a view needs it, while the session is still being looked up. */
export function prefetch(path: string): void {
  const answer = get(path);
  // The view that takes a failed fetch repeats it.
  answer.catch(() => undefined);
  prefetched.set(path, answer);
}

const prefetched = new Map<string, Promise<unknown>>();

/** Sends one request at a time, and limits their rate. */
class Asker<T> {
  private isBusy = false;
  private isWanted = false;
  private readonly abort = new AbortController();

  constructor(
    private readonly path: string,
    private readonly how: Ask<T>,
    private readonly pauseMs: number,
    private readonly tell: (data: T | undefined, error: ApiError | undefined) => void,
  ) {}

  ask(): void {
    if (this.isBusy) this.isWanted = true;
    else void this.run();
  }

  close(): void {
    this.abort.abort();
  }

  private async run(): Promise<void> {
    this.isBusy = true;
    try {
      const early = prefetched.get(this.path) as Promise<T> | undefined;
      prefetched.delete(this.path);
      const now = () => this.how(this.path, this.abort.signal);
      // A failed prefetch is repeated: the user may have signed in since.
      this.tell(await (early ? early.catch(now) : now()), undefined);
    } catch (error) {
      this.fail(error);
    }
    await new Promise((resolve) => setTimeout(resolve, this.pauseMs));
    this.isBusy = false;
    if (this.isWanted && !this.abort.signal.aborted) {
      this.isWanted = false;
      this.ask();
    }
  }

  private fail(error: unknown): void {
    if (this.abort.signal.aborted) return;
    if (!(error instanceof ApiError)) throw error;
    this.tell(undefined, error);
    // Without the event stream, only a retry can tell that the controller is back.
    if (error.mayHeal && liveness.value !== "live")
      setTimeout(() => this.abort.signal.aborted || this.ask(), HEAL_MS);
  }
}

/** Minimum time between fetches of a path, unless a view asks for another one. */
const PAUSE_MS = 300;
const HEAL_MS = 1500;
