// The form that adds and edits policies: checked while typing, and tried on the controller's model
// of the fabric before it is applied.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, request } from "../api/client";
import { useResource } from "../api/resource";
import { hasEnded, mayChange } from "../api/session";
import type { DryRun, FilterCheck, PolicyReport } from "../api/types";
import {
  type Draft,
  FIELDS,
  type Field,
  type Problems,
  emptyDraft,
  problems,
  toDraft,
  toPolicy,
  warnings,
  withStall,
} from "../model/validate";
import { Empty, Failure, Heading, Waiting, useLast, useSettled } from "../parts/basics";
import { Diff, Summary } from "../parts/plan";
import { go, link, route } from "../parts/route";
import { Fields } from "./policy-fields";

export function PolicyForm({ name }: { name?: string }) {
  const path = name === undefined ? undefined : `/policies/${encodeURIComponent(name)}`;
  const { data, error } = useResource<PolicyReport>(path);
  const old = useLast(data);
  if (!mayChange())
    return (
      <>
        <Heading title={name ?? "New policy"} />
        <Empty title="You cannot change policies">
          <p>Your role can only view them. Ask for an operator token.</p>
        </Empty>
      </>
    );
  if (name !== undefined && !old)
    return (
      <>
        <Heading title={name} />
        <Failure error={error} what="Policy" />
        <Waiting is={!error} />
      </>
    );
  return <Form key={name ?? "new"} old={old} />;
}

/** Initial values from the URL: a click on a host or a link fills in fields. */
function prefilled(): Draft {
  const draft = emptyDraft();
  for (const field of FIELDS) draft[field] = route.value.query.get(field) ?? draft[field];
  return withStall(draft);
}

/**
 * Drafts that were being typed when the session ended, by edited policy; restored after sign-in.
 */
const kept = new Map<string | undefined, Draft>();

function useDraft(old: PolicyReport | undefined) {
  const name = old?.policy.name;
  const [draft, setDraft] = useState(
    () => kept.get(name) ?? (old ? toDraft(old.policy) : prefilled()),
  );
  const last = useRef(draft);
  last.current = draft;
  useEffect(() => {
    kept.delete(name);
    return () => void (hasEnded() && kept.set(name, last.current));
  }, [name]);
  return [draft, setDraft] as const;
}

function Form({ old }: { old?: PolicyReport }) {
  const [draft, setDraft] = useDraft(old);
  const [touched, setTouched] = useState<Set<Field>>(new Set());
  const [refusal, setRefusal] = useState<ApiError>();
  const [isBusy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const { problem: filterProblem, matches } = useFilterCheck(draft.filter);
  const own = problems(draft);
  if (filterProblem) own.filter ??= filterProblem;
  const isClean = Object.keys(own).length === 0;
  const field = FIELDS.find((one) => one === refusal?.field);
  const found: Problems = field ? { [field]: refusal?.message, ...own } : own;
  const set = (field: Field, value: string) => {
    setDraft((before) => ({ ...before, [field]: value }));
    setTouched((before) => new Set(before).add(field));
    setRefusal(undefined);
  };
  const save = async (event?: Event, force = false) => {
    event?.preventDefault();
    setTouched(new Set(FIELDS));
    // Delayed until the section that contains the field is open.
    if (!isClean) return void requestAnimationFrame(() => focusFirst(form.current, found));
    setBusy(true);
    try {
      const report = await send(draft, old, force);
      go(["policies", report.policy.name]);
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setRefusal(failure);
    } finally {
      setBusy(false);
    }
  };
  const shared = { draft, found, warned: warnings(draft), touched, set };
  return (
    <>
      <Heading title={old ? `Edit ${old.policy.name}` : "New policy"} />
      <form ref={form} class="policy-form" onSubmit={save} noValidate aria-label="Policy">
        <Fields shared={shared} isEdit={old !== undefined} />
        <Matches lines={matches} />
        {refusal && !field && <Failure error={refusal} what="Refused" />}
        <div class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            {old ? "Save" : "Create"}
          </button>
          {refusal?.code === "not-proved" && (
            <button type="button" disabled={isBusy} onClick={() => void save(undefined, true)}>
              {old ? "Save" : "Create"} anyway
            </button>
          )}
          <a class="button" href={old ? link(["policies", old.policy.name]) : link(["policies"])}>
            Cancel
          </a>
        </div>
        <Preview draft={draft} old={old} isClean={isClean} />
      </form>
    </>
  );
}

async function send(draft: Draft, old?: PolicyReport, force = false): Promise<PolicyReport> {
  const policy = toPolicy(draft, old?.policy);
  const how = force ? "?force=true" : "";
  if (!old) return request("POST", `/policies${how}`, policy);
  try {
    return await request("PUT", `/policies/${encodeURIComponent(old.policy.name)}${how}`, policy);
  } catch (error) {
    if (error instanceof ApiError && error.isMissingEndpoint) {
      throw new ApiError(error.status, "no-edit", NO_EDIT);
    }
    throw error;
  }
}

const NO_EDIT = "This controller cannot change a policy in place; delete it and create a new one.";

function focusFirst(form: HTMLFormElement | null, found: Problems): void {
  const first = FIELDS.find((field) => found[field]);
  form?.querySelector<HTMLElement>(`#field-${first}`)?.focus();
}

/** The error in a filter, or what it matches. */
interface Checked {
  problem?: string;
  matches?: string[];
}

/** The controller's check of a filter, once typing pauses. */
function useFilterCheck(filter: string): Checked {
  const settled = useSettled(filter.trim(), 300);
  const [found, setFound] = useState<{ of: string; is: Checked }>();
  useEffect(() => {
    if (settled === "") return;
    const abort = new AbortController();
    request<FilterCheck>("POST", "/filters/check", { filter: settled }, abort.signal)
      .then(({ matches = [], total = matches.length }) => {
        const more = total > matches.length ? [`and ${total - matches.length} more`] : [];
        setFound({ of: settled, is: { matches: [...matches, ...more] } });
      })
      .catch((error) => {
        if (!(error instanceof ApiError) || abort.signal.aborted) return;
        // Such a controller checks the filter when the policy is saved.
        if (error.isMissingEndpoint) return;
        setFound({ of: settled, is: { problem: pointed(settled, error) } });
      });
    return () => abort.abort();
  }, [settled]);
  return found?.of === filter.trim() ? found.is : {};
}

/** The controller's description of what the filter matches. */
function Matches({ lines }: { lines: string[] | undefined }) {
  return (
    <div class="matches" aria-live="polite">
      {lines && lines.length > 0 && (
        <>
          <p class="muted">Within the other fields, the filter matches:</p>
          <ul>
            {lines.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

/** The error message with its place in the filter. */
function pointed(filter: string, { message, at }: ApiError): string {
  if (at === null) return message;
  // The controller counts bytes, JavaScript counts UTF-16 code units.
  const before = new TextDecoder().decode(new TextEncoder().encode(filter).slice(0, at));
  const rest = filter.slice(before.length, before.length + 20);
  return rest ? `${message} (here: “${rest}”)` : `${message} (at the end)`;
}

/** The changes on each switch, computed by the controller on its model of the fabric. */
function Preview({ draft, old, isClean }: { draft: Draft; old?: PolicyReport; isClean: boolean }) {
  const wanted = isClean ? JSON.stringify(toPolicy(draft, old?.policy)) : undefined;
  const result = useTrial(useSettled(wanted, RESTS_MS), old);
  const isFresh = isClean && result !== undefined && result.of === wanted;
  const run = isFresh ? result.run : undefined;
  return (
    <section class="preview" aria-labelledby="preview">
      <h2 id="preview">What will change</h2>
      <div aria-live="polite">
        {!isClean && <p class="muted">Shown when all fields are valid.</p>}
        {isClean && !isFresh && <p class="muted">Dry run in progress …</p>}
        {isFresh && <Failure error={result.error} what="Dry run" />}
        {run && <Summary run={run} />}
      </div>
      {run && <Diff run={run} />}
    </section>
  );
}

interface Trial {
  /** The policy as sent. */
  of: string;
  run?: DryRun;
  error?: ApiError;
}

/**
 * Sends dry runs one at a time, each with the newest policy: a dry run may take the controller
 * seconds, and does not stop when its request is aborted.
 */
function useTrial(policy: string | undefined, old?: PolicyReport): Trial | undefined {
  const [result, setResult] = useState<Trial>();
  const newest = useRef(policy);
  newest.current = policy;
  const isBusy = useRef(false);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);
  const ask = async (): Promise<void> => {
    const of = newest.current;
    if (of === undefined || isBusy.current) return;
    isBusy.current = true;
    const answer = await tried(of, old, abort.current.signal);
    isBusy.current = false;
    if (!answer) return;
    setResult({ of, ...answer });
    if (newest.current !== of) void ask();
  };
  useEffect(() => void ask(), [policy]);
  return result;
}

/** The result of a dry run; `undefined` if the view has been closed. */
async function tried(
  policy: string,
  old: PolicyReport | undefined,
  signal: AbortSignal,
): Promise<Omit<Trial, "of"> | undefined> {
  const path = old ? `/policies/${encodeURIComponent(old.policy.name)}` : "/policies";
  const method = old ? "PUT" : "POST";
  try {
    return { run: await request(method, `${path}?dry_run=true`, JSON.parse(policy), signal) };
  } catch (error) {
    if (signal.aborted) return undefined;
    if (error instanceof ApiError) return { error };
    throw error;
  }
}

/** A form is tried after this time without typing. */
const RESTS_MS = 800;
