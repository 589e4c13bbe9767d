// Components and hooks that several views use.
import { type ComponentChildren, Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../api/client";
import { aheadMs } from "../api/clock";
import { liveness } from "../api/live";
import type { TapPolicy } from "../api/types";
import { duration } from "../model/format";
import { type Tone, trafficWords } from "../model/policy";

/** A word with a colour and a sign, so that meaning does not depend on colour. */
export function Tag({
  tone,
  children,
  title,
}: {
  tone: Tone;
  children: ComponentChildren;
  title?: string;
}) {
  return (
    <span class={`tag ${tone}`} title={title}>
      <span aria-hidden="true">{SIGNS[tone]}</span> {children}
    </span>
  );
}

const SIGNS: Record<Tone, string> = { good: "●", wait: "◐", bad: "▲", plain: "○" };

/** The traffic that a policy copies; lines break only between fields. */
export function Traffic({ of }: { of: TapPolicy }) {
  return (
    <>
      {trafficWords(of).map((words) => (
        <Fragment key={words}>
          <span class="words">{words}</span>{" "}
        </Fragment>
      ))}
    </>
  );
}

/** Why there is nothing to show, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/**
 * An error message; the view keeps its old data. A lost connection is not reported here, because
 * the frame already reports it.
 */
export function Failure({
  error,
  what,
  hasData,
}: {
  error: ApiError | undefined;
  what: string;
  hasData?: boolean;
}) {
  if (!error || (hasData && error.status === 0 && liveness.value === "lost")) return null;
  if (error.isMissingEndpoint) {
    return (
      <Empty title={`${what}: not available in this controller`}>
        <p>This controller does not support it.</p>
      </Empty>
    );
  }
  return (
    <div class="failure" role="alert">
      <strong>{what}: </strong>
      {error.message}
      {error.leader && (
        <>
          {" "}
          <a href={error.leader}>Open the page of that controller</a>
        </>
      )}
    </div>
  );
}

/** Shows an error, or that the response is pending. */
export function Unanswered({
  of: { data, error },
  what,
}: {
  of: { data: unknown; error: ApiError | undefined };
  what: string;
}) {
  return (
    <>
      <Failure error={error} what={what} hasData={data !== undefined} />
      <Waiting is={data === undefined && !error} />
    </>
  );
}

/** Reports that a response is pending, if it takes long. */
export function Waiting({ is }: { is: boolean }) {
  const [isLong, setLong] = useState(false);
  useEffect(() => {
    if (!is) return setLong(false);
    const timer = setTimeout(() => setLong(true), LONG_MS);
    return () => clearTimeout(timer);
  }, [is]);
  return <div role="status">{isLong && <p class="muted">Loading …</p>}</div>;
}

const LONG_MS = 500;

/** Notes on an object. */
export function Notes({ notes = [] }: { notes?: string[] | undefined }) {
  return (
    <>
      {notes.map((note) => (
        <p key={note} class="note">
          {note}
        </p>
      ))}
    </>
  );
}

/** The heading of a view, with its actions. */
export function Heading({
  title,
  children,
}: {
  title: ComponentChildren;
  children?: ComponentChildren;
}) {
  return (
    <div class="heading">
      <h1 id="title">{title}</h1>
      <div class="actions">{children}</div>
    </div>
  );
}

export function Search({
  value,
  onChange,
  label,
}: {
  value: string;
  onChange(value: string): void;
  label: string;
}) {
  return (
    <input
      type="search"
      class="search"
      value={value}
      aria-label={label}
      placeholder={label}
      onInput={(event) => onChange(event.currentTarget.value)}
    />
  );
}

/** `value` once it has not changed for `ms`. */
export function useSettled<T>(value: T, ms = 250): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** The last defined value, so that what the user works on stays when its object is gone. */
export function useLast<T>(value: T | undefined): T | undefined {
  const last = useRef(value);
  last.current = value ?? last.current;
  return last.current;
}

/** The current time, updated every second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** The time left by the controller's clock. */
export function Countdown({ endsAt }: { endsAt: number }) {
  const left = endsAt - useNow() + aheadMs.value;
  const tone = left < 60_000 ? "wait" : "plain";
  const text = left <= 0 ? "ended" : duration(left);
  return (
    <Tag tone={tone} title={new Date(endsAt).toLocaleString("en-GB")}>
      {text}
    </Tag>
  );
}

/** A confirmation dialog. The browser keeps the focus inside; afterwards it returns. */
export function Confirm({
  title,
  action,
  isFinal,
  isBusy,
  onConfirm,
  onCancel,
  children,
}: {
  title: string;
  action: string;
  /** Whether the action cannot be undone. */
  isFinal?: boolean;
  /** Whether the action is in progress. */
  isBusy?: boolean;
  onConfirm(): void;
  onCancel(): void;
  children?: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const asker = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    // Delayed until the dialog is gone: until then nothing else can have the focus.
    return () => void setTimeout(() => giveFocus(asker));
  }, []);
  return (
    <dialog ref={dialog} onClose={onCancel} aria-labelledby="confirm-title">
      <h2 id="confirm-title">{title}</h2>
      {children}
      <div class="actions">
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button
          type="button"
          class={isFinal ? "danger" : "primary"}
          disabled={isBusy}
          onClick={onConfirm}
        >
          {action}
        </button>
      </div>
    </dialog>
  );
}

/** Returns the focus to the element that had it, or to the view if that element is gone. */
function giveFocus(asker: HTMLElement | null): void {
  const isFree = document.activeElement === document.body;
  const to = asker?.isConnected ? asker : document.getElementById("main");
  if (isFree) to?.focus({ preventScroll: true });
}

/** A column heading that sorts by its column. */
export function SortHead<K extends string>({
  id,
  sort,
  onSort,
  children,
  isNumber,
}: {
  id: K;
  sort: Sort<K>;
  onSort(sort: Sort<K>): void;
  children: ComponentChildren;
  isNumber?: boolean;
}) {
  const isMine = sort.by === id;
  const direction = !isMine ? "none" : sort.isDown ? "descending" : "ascending";
  const turn = () => onSort({ by: id, isDown: isMine ? !sort.isDown : Boolean(isNumber) });
  return (
    <th scope="col" aria-sort={direction} class={isNumber ? "number" : undefined}>
      <button type="button" class="sort" onClick={turn}>
        {children}
        <span aria-hidden="true">{isMine ? (sort.isDown ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

export interface Sort<K extends string> {
  by: K;
  isDown: boolean;
}

/** A copy of `items`, sorted by the key `of`. */
export function sorted<T>(items: T[], of: (item: T) => string | number, isDown: boolean): T[] {
  const compare = (a: string | number, b: string | number) =>
    typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
  const up = [...items].sort((a, b) => compare(of(a), of(b)));
  return isDown ? up.reverse() : up;
}

const collator = new Intl.Collator("en", { numeric: true });

/** A table that scrolls by itself, also by keyboard. */
export function Table({
  label,
  children,
  kind,
}: {
  label: string;
  children: ComponentChildren;
  /** CSS class of the table. */
  kind?: string;
}) {
  return (
    <div class={kind ? `table ${kind}` : "table"} role="region" aria-label={label} tabIndex={0}>
      <table>{children}</table>
    </div>
  );
}

/** A name with its value. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
