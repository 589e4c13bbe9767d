// Adds this page to the monitors of a policy, as the monitor `controller`, and removes it.
import { useState } from "preact/hooks";
import type { PolicyReport, TapPolicy } from "../api/types";
import { elsewhere, notShownHere, shownHere } from "../model/policy";
import { Empty } from "../parts/basics";
import { ConfirmChange } from "../parts/change";
import { link } from "../parts/route";

interface WatchProps {
  report: PolicyReport;
  onMade(): void;
}

/** Shown while copies go elsewhere: where they go, and how to show them here too. */
export function NotWatched({ report, onMade }: WatchProps) {
  const [isAsked, setAsked] = useState(false);
  const { policy } = report;
  const others = elsewhere(policy).join(", ");
  return (
    <Empty title="Nothing is watched here">
      <p>
        The copies of {policy.name} go to {others}. Have them come here as well, and you see the
        start of each packet as it passes.
      </p>
      <button type="button" class="primary" onClick={() => setAsked(true)}>
        Watch here
      </button>
      {isAsked && (
        <ConfirmChange
          change={replace(report, shownHere(policy))}
          title={`Watch ${policy.name} here?`}
          action="Watch"
          failed="Not changed"
          onMade={() => (setAsked(false), onMade())}
          onCancel={() => setAsked(false)}
        >
          <p>
            The policy gets <code>controller</code> as one more monitor until you stop watching,
            also when you leave this page. What goes to {others} goes on without a gap; the ledger
            begins at zero, and the audit log keeps the change.
          </p>
        </ConfirmChange>
      )}
    </Empty>
  );
}

/** Shown while copies come here. */
export function StopWatching({ report, onMade }: WatchProps) {
  const [isAsked, setAsked] = useState(false);
  const { policy } = report;
  const without = notShownHere(policy);
  // A policy needs a monitor: without another one, it would have to be deleted.
  if (!without) return null;
  return (
    <>
      <button type="button" onClick={() => setAsked(true)}>
        Stop watching
      </button>
      {isAsked && (
        <ConfirmChange
          change={replace(report, without)}
          title={`Stop watching ${policy.name}?`}
          action="Stop"
          failed="Not changed"
          onMade={() => (setAsked(false), onMade())}
          onCancel={() => setAsked(false)}
        >
          <p>
            Copies go to {elsewhere(policy).join(", ")} alone from then on. The packets in this list
            go: download them first if you need them. The ledger begins at zero.
          </p>
        </ConfirmChange>
      )}
    </>
  );
}

/** How to stop a policy that has no other monitor. */
export function OnlyHere({ report: { policy } }: { report: PolicyReport }) {
  if (notShownHere(policy)) return null;
  return (
    <>
      {" "}
      They go nowhere else: to stop, <a href={link(["policies", policy.name, "edit"])}>
        edit
      </a> or <a href={link(["policies", policy.name])}>delete</a> the policy.
    </>
  );
}

/** Shown to users without the required role, instead of a disabled button. */
export function MayNotWatch() {
  return (
    <Empty title="Packets are shown to operators">
      <p>
        You may look at policies and their counts, but neither see what is in the packets nor change
        where they go. Ask for a token of an operator.
      </p>
    </Empty>
  );
}

const replace = ({ policy }: PolicyReport, wanted: TapPolicy) => ({
  method: "PUT" as const,
  path: `/policies/${encodeURIComponent(policy.name)}`,
  body: wanted,
});
