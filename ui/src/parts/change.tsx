// A change to a policy: dry run, confirmation, and the change itself.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, request } from "../api/client";
import type { DryRun } from "../api/types";
import { Confirm, Failure } from "./basics";
import { Diff, Summary } from "./plan";

/** The request to send when confirmed; with `?dry_run=true` it is sent beforehand. */
export interface Change {
  method: "PUT" | "DELETE";
  path: string;
  body?: unknown;
}

/** Shows the effects of a change, asks for confirmation, makes the change, and reports errors. */
export function ConfirmChange({
  change,
  title,
  action,
  failed,
  onMade,
  onCancel,
  children,
}: {
  change: Change;
  title: string;
  action: string;
  failed: string;
  onMade(): void;
  onCancel(): void;
  children: ComponentChildren;
}) {
  // Fixed, so that what was tried is what is made, even if the policy changes meanwhile.
  const [{ method, path, body }] = useState(change);
  const [error, setError] = useState<ApiError>();
  const [isBusy, setBusy] = useState(false);
  const trial = useTrial(change);
  const isUnproved =
    trial.run?.proof?.is_proved === false || [error, trial.error].some(isNotProved);
  const make = async () => {
    setBusy(true);
    try {
      await request(method, isUnproved ? `${path}?force=true` : path, body);
      onMade();
    } catch (failure) {
      if (failure instanceof ApiError) setError(failure);
      else throw failure;
    } finally {
      setBusy(false);
    }
  };
  return (
    <Confirm
      title={title}
      action={isUnproved ? `${action} anyway` : action}
      isFinal={method === "DELETE"}
      isBusy={isBusy}
      onConfirm={() => void make()}
      onCancel={onCancel}
    >
      {children}
      <section class="preview" aria-labelledby="preview">
        <h3 id="preview">What will change</h3>
        <div aria-live="polite">
          {!trial.run && !trial.error && <p class="muted">Dry run in progress …</p>}
          <Failure error={trial.error} what="Dry run" />
          {trial.run && <Summary run={trial.run} />}
        </div>
        {trial.run && <Diff run={trial.run} />}
      </section>
      <Failure error={error} what={failed} />
    </Confirm>
  );
}

const isNotProved = (error: ApiError | undefined): boolean => error?.code === "not-proved";

/** Sends the dry run once. */
function useTrial({ method, path, body }: Change): { run?: DryRun; error?: ApiError } {
  const [result, setResult] = useState<{ run?: DryRun; error?: ApiError }>({});
  useEffect(() => {
    const abort = new AbortController();
    request<DryRun>(method, `${path}?dry_run=true`, body, abort.signal)
      .then((run) => setResult({ run }))
      .catch((error) => {
        if (error instanceof ApiError && !abort.signal.aborted) setResult({ error });
      });
    return () => abort.abort();
  }, []);
  return result;
}
