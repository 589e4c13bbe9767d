// A list that the controller searches and the page sorts.
import { useState } from "preact/hooks";
import type { Topic } from "../api/live";
import { count, plural } from "../model/format";
import { type Sort, sorted, useSettled } from "./basics";
import { usePages } from "./pages";
import { route } from "./route";

/** Search text, sort order and rows of a list; `by` is the initial sort column. */
export function useList<T, C extends string>(
  path: string | undefined,
  order: Record<C, (item: T) => string | number>,
  by: NoInfer<C>,
  options: { topics: Topic[]; everyMs: number },
  filters: Record<string, string | undefined> = {},
) {
  const [text, setText] = useState(route.value.query.get("q") ?? "");
  const [sort, setSort] = useState<Sort<C>>({ by: by as C, isDown: false });
  const q = useSettled(text.trim());
  const pages = usePages<T>(path, { q, ...filters }, options);
  const rows = sorted(pages.items, order[sort.by], sort.isDown);
  const isSorted = sort.by !== by || sort.isDown;
  return { text, setText, q, sort, setSort, pages, rows, isSorted };
}

/** The number of items, and a button for more. */
export function Foot({
  shown,
  total,
  more,
  what = "policy",
  many = "policies",
  isSorted = false,
}: {
  shown: number;
  total: number;
  more: (() => void) | undefined;
  what?: string;
  many?: string;
  /** Whether the rows are sorted in another way than the controller's. */
  isSorted?: boolean;
}) {
  if (total === 0) return null;
  const all = shown >= total;
  return (
    <p class="foot">
      {all
        ? plural(total, what, many)
        : `The first ${count(shown)} of ${plural(total, what, many)}${isSorted ? ", sorted among these only" : ""}.`}
      {more && (
        <>
          {" "}
          <button type="button" onClick={more}>
            Show more
          </button>
        </>
      )}
      {!all && !more && " Search for others."}
    </p>
  );
}
