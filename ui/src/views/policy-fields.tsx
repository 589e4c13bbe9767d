// The fields of the policy form, with labels, hints and errors.
import type { ComponentChildren } from "preact";
import { useResource } from "../api/resource";
import type { HostReport, ListOf, SwitchReport } from "../api/types";
import { type Draft, type Field, PROTOCOLS, type Problems, TYPES } from "../model/validate";

/** State shared by all fields. */
export interface Shared {
  draft: Draft;
  found: Problems;
  warned: Problems;
  touched: Set<Field>;
  set(field: Field, value: string): void;
}

export function Fields({ shared, isEdit }: { shared: Shared; isEdit: boolean }) {
  const { found, touched } = shared;
  return (
    <>
      <fieldset>
        <legend>Name and monitor</legend>
        <Input field="name" label="Name" shared={shared} isFixed={isEdit} isRequired />
        <Input
          field="monitor"
          label="Monitor"
          shared={shared}
          hint="A port (0x1/3), its name, or a host's address; several with commas. Ports that share flows: one-of:0x1/3+0x2/4"
          list="monitors"
          isRequired
        />
        <Monitors />
      </fieldset>
      <fieldset>
        <legend>Traffic</legend>
        <p class="muted">Empty fields match everything.</p>
        <Input field="src-ip" label="Source IP" shared={shared} hint="Address or prefix" />
        <Input field="dst-ip" label="Destination IP" shared={shared} hint="Address or prefix" />
        <Input field="ip-proto" label="IP protocol" shared={shared} list="protocols" />
        <Input field="src-port" label="Source port" shared={shared} hint="80 or 8000-8010" />
        <Input field="dst-port" label="Destination port" shared={shared} hint="80 or 8000-8010" />
        <Input
          field="vlan"
          label="VLAN"
          shared={shared}
          hint="Identifier of the outermost tag, tagged or untagged"
        />
        <Input field="eth-type" label="EtherType" shared={shared} hint={TYPES} />
        <Input field="src-mac" label="Source MAC" shared={shared} />
        <Input field="dst-mac" label="Destination MAC" shared={shared} />
        <Input
          field="filter"
          label="Filter"
          shared={shared}
          hint="tcpdump syntax: tcp port 80 and host 10.0.0.1"
          isWide
        />
        <Choice
          field="direction"
          label="Direction"
          shared={shared}
          values={[
            ["both", "Both directions"],
            ["forward", "Forward only"],
          ]}
        />
        <datalist id="protocols">
          {PROTOCOLS.map((word) => (
            <option key={word} value={word} />
          ))}
        </datalist>
      </fieldset>
      <fieldset>
        <legend>Options</legend>
        <Input
          field="expires"
          label="Ends after"
          shared={shared}
          hint="30m, 2h, or a time; empty: never"
        />
        <Input field="reason" label="Reason" shared={shared} hint="Kept in the audit log" />
        <Input field="owner" label="Owner" shared={shared} />
        <Choice
          field="delivery"
          label="Delivery"
          shared={shared}
          values={DELIVERIES}
          hint={DELIVERY_HINTS[shared.draft.delivery]}
        />
        {shared.draft.delivery === "lossless" && (
          <Input
            field="stall"
            label="Maximum wait of senders, ms"
            shared={shared}
            hint="Empty: the limit of the monitor's port"
          />
        )}
        <details class="more" open={MORE.some((field) => touched.has(field) && found[field])}>
          <summary>More</summary>
          <div class="more-fields">
            <Input
              field="schedule"
              label="Schedule"
              shared={shared}
              hint="Mon-Fri 08:00-18:00, UTC"
            />
            <Input field="snaplen" label="Snaplen, bytes" shared={shared} />
            <Input field="sample" label="Sample" shared={shared} hint="1/100" />
            <Choice
              field="tags"
              label="VLAN tags"
              shared={shared}
              values={[
                ["keep", "Keep in copies"],
                ["strip", "Strip from copies"],
              ]}
              hint="At most the two outermost are stripped"
            />
            <Choice
              field="point"
              label="Copy point"
              shared={shared}
              values={[
                ["ingress", "Ingress, before rewrites"],
                ["egress", "Egress, after rewrites"],
              ]}
            />
            <Choice
              field="transport"
              label="Transport between switches"
              shared={shared}
              values={[
                ["svlan", "S-VLAN tag"],
                ["rewrite", "Rewritten destination MAC"],
              ]}
            />
            <Input
              field="priority"
              label="Priority"
              shared={shared}
              hint="The lowest gives way when a switch is full"
            />
          </div>
        </details>
      </fieldset>
    </>
  );
}

/** Fields under "More", which opens if one of them has an error. */
const MORE = ["schedule", "snaplen", "sample", "tags", "point", "transport", "priority"] as const;

const DELIVERIES: [string, string][] = [
  ["best-effort", "Best effort"],
  ["lossless", "Lossless"],
  ["sample-on-pressure", "Sample on pressure"],
];
const DELIVERY_HINTS: Record<string, string> = {
  "best-effort": "Senders do not wait for the monitor",
  lossless: "Senders wait when the monitor is full",
  "sample-on-pressure": "Fewer copies when the monitor is full",
};

interface Common {
  field: Field;
  label: string;
  shared: Shared;
}

function Input({
  hint,
  list,
  isFixed,
  isRequired,
  isWide,
  ...common
}: Common & {
  hint?: string;
  list?: string;
  isFixed?: boolean;
  isRequired?: boolean;
  isWide?: boolean;
}) {
  const { field, shared } = common;
  return (
    <Labelled {...common} hint={hint} isRequired={isRequired} isWide={isWide}>
      {(described) => (
        <input
          {...described}
          value={shared.draft[field]}
          list={list}
          readOnly={isFixed}
          spellcheck={false}
          autocomplete="off"
          aria-required={isRequired}
          onInput={(event) => shared.set(field, event.currentTarget.value)}
        />
      )}
    </Labelled>
  );
}

function Choice({
  values,
  hint,
  ...common
}: Common & { values: [string, string][]; hint?: string | undefined }) {
  const { field, shared } = common;
  const chosen = shared.draft[field];
  const isOther = !values.some(([value]) => value === chosen);
  return (
    <Labelled {...common} hint={hint}>
      {(described) => (
        <select
          {...described}
          value={chosen}
          onChange={(event) => shared.set(field, event.currentTarget.value)}
        >
          {isOther && <option value={chosen}>{chosen}</option>}
          {values.map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      )}
    </Labelled>
  );
}

/** Attributes that tie a control to its label, hint and messages. */
interface Described {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean;
}

/** A control with its label, hint, error and warning. */
function Labelled({
  field,
  label,
  shared: { found, warned, touched },
  hint,
  isRequired,
  isWide,
  children,
}: Common & {
  hint?: string | undefined;
  isRequired?: boolean | undefined;
  isWide?: boolean | undefined;
  children(described: Described): ComponentChildren;
}) {
  const id = `field-${field}`;
  const problem = touched.has(field) ? found[field] : undefined;
  const warning = warned[field];
  const parts = [hint && `${id}-hint`, problem && `${id}-problem`, warning && `${id}-warning`];
  const described = parts.filter(Boolean).join(" ") || undefined;
  return (
    <div class={`field${isWide ? " wide-field" : ""}`}>
      <label for={id}>
        {label}
        {isRequired && <span class="muted"> (required)</span>}
      </label>
      {children({ id, "aria-describedby": described, "aria-invalid": problem !== undefined })}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      <p class="problem" id={`${id}-problem`} aria-live="polite">
        {problem}
      </p>
      <p class={warning ? "note warning" : "warning"} id={`${id}-warning`} aria-live="polite">
        {warning && `${warning[0]!.toUpperCase()}${warning.slice(1)}.`}
      </p>
    </div>
  );
}

/** Suggestions for the monitor: ports and hosts. */
function Monitors() {
  const { data: switches } = useResource<ListOf<SwitchReport>>("/switches?limit=50");
  const { data: hosts } = useResource<ListOf<HostReport>>("/hosts?limit=100");
  const ports = (switches?.items ?? []).flatMap((s) =>
    s.ports.map((p) => [`${s.switch}/${p.port}`, p.name]),
  );
  const addresses = (hosts?.items ?? []).flatMap((h) =>
    h.addresses.map((a) => [a, `${h.port_name} of ${h.switch}`]),
  );
  return (
    <datalist id="monitors">
      {[["controller", "shown live on this page"], ...ports, ...addresses].map(([value, words]) => (
        <option key={value} value={value}>
          {words}
        </option>
      ))}
    </datalist>
  );
}
