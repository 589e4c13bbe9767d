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
    <Empty title="Packets are not shown here">
      <p>
        The copies of {policy.name} go to {others}. Watch them here to see the start of each packet
        live as well.
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
            This adds <code>controller</code> to the monitors of the policy until you stop watching,
            even if you leave this page. Copies to {others} continue without a gap. The ledger
            starts at zero, and the audit log records the change.
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
            Copies then go to {elsewhere(policy).join(", ")} only. This list is cleared: download
            the packets first if you need them. The ledger starts at zero.
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
      This is the only monitor: to stop, <a href={link(["policies", policy.name, "edit"])}>
        edit
      </a>{" "}
      or <a href={link(["policies", policy.name])}>delete</a> the policy.
    </>
  );
}

/** Shown to users without the required role, instead of a disabled button. */
export function MayNotWatch() {
  return (
    <Empty title="Packets are visible to operators only">
      <p>
        With your role you can see policies and their counters, but not the contents of packets, and
        you cannot change policies. Ask for an operator token.
      </p>
    </Empty>
  );
}

const replace = ({ policy }: PolicyReport, wanted: TapPolicy) => ({
  method: "PUT" as const,
  path: `/policies/${encodeURIComponent(policy.name)}`,
  body: wanted,
});
