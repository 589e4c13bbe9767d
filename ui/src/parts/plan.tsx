// The effects of a change, computed by the controller on its model of the fabric.
import { useMemo } from "preact/hooks";
import type { DryRun } from "../api/types";
import { plural } from "../model/format";
import { Notes, Tag } from "./basics";

/** Proof, notes, and the number of changes, for a live region; `Diff` has the changes. */
export function Summary({ run }: { run: DryRun }) {
  const [added, removed] = useMemo(
    () => [
      run.changes.reduce((sum, change) => sum + change.add.length, 0),
      run.changes.reduce((sum, change) => sum + change.remove.length, 0),
    ],
    [run],
  );
  return (
    <>
      {run.proof && <Proof proof={run.proof} />}
      <Notes notes={run.notes} />
      <p>
        {plural(added, "rule or group is added", "rules and groups are added")},{" "}
        {plural(removed, "removed", "removed")}, on{" "}
        {plural(run.changes.length, "switch", "switches")}.
      </p>
    </>
  );
}

/** The changes of each switch. */
export function Diff({ run }: { run: DryRun }) {
  return (
    <>
      {run.changes.map((change) => (
        <details key={change.switch} open={run.changes.length <= 3}>
          <summary>
            {change.switch}: +{change.add.length} −{change.remove.length}
          </summary>
          <pre class="diff" tabIndex={0}>
            {change.remove.map((line) => (
              <span key={`-${line}`} class="removed">{`− ${line}\n`}</span>
            ))}
            {change.add.map((line) => (
              <span key={`+${line}`} class="added">{`+ ${line}\n`}</span>
            ))}
          </pre>
        </details>
      ))}
    </>
  );
}

function Proof({ proof }: { proof: NonNullable<DryRun["proof"]> }) {
  return (
    <div>
      <p>
        <Tag tone={proof.is_proved ? "good" : "bad"}>
          {proof.is_proved ? "proved" : "not proved"}
        </Tag>
      </p>
      <ul class="proof">
        {proof.problems.map((words) => (
          <li key={words} class="bad-text">
            {words}
          </li>
        ))}
        <li>{plural(proof.checked, "frame path")} checked from port to port.</li>
      </ul>
    </div>
  );
}
