// All switches.
import type { SwitchReport } from "../api/types";
import { count } from "../model/format";
import { urgency } from "../model/policy";
import { condition } from "../model/switch";
import { Empty, Heading, Search, SortHead, Table, Tag, Unanswered } from "../parts/basics";
import { Foot, useList } from "../parts/list";
import { link } from "../parts/route";

type Column = "switch" | "state" | "ports" | "hosts" | "rules" | "groups" | "refusals";

const ORDER: Record<Column, (report: SwitchReport) => string | number> = {
  switch: (s) => Number(s.switch),
  state: (s) => urgency(condition(s).tone),
  ports: (s) => s.ports.length,
  hosts: (s) => s.hosts,
  rules: (s) => s.rules,
  groups: (s) => s.groups,
  refusals: (s) => s.refusals,
};

export function Switches() {
  const { text, setText, q, sort, setSort, pages, rows, isSorted } = useList(
    "/switches",
    ORDER,
    "switch",
    {
      topics: ["switch"],
      everyMs: 3000,
    },
  );
  const same = { sort, onSort: setSort };
  return (
    <>
      <Heading title="Switches">
        <Search value={text} onChange={setText} label="Search switches" />
      </Heading>
      <Unanswered of={pages} what="Switches" />
      {pages.data && rows.length === 0 && <NoSwitch q={q} />}
      {rows.length > 0 && (
        <Table label="Switches">
          <thead>
            <tr>
              <SortHead id="switch" {...same}>
                Switch
              </SortHead>
              <SortHead id="state" {...same}>
                State
              </SortHead>
              <SortHead id="ports" isNumber {...same}>
                Ports
              </SortHead>
              <SortHead id="hosts" isNumber {...same}>
                Hosts
              </SortHead>
              <SortHead id="rules" isNumber {...same}>
                Rules
              </SortHead>
              <SortHead id="groups" isNumber {...same}>
                Groups
              </SortHead>
              <SortHead id="refusals" isNumber {...same}>
                Refusals
              </SortHead>
            </tr>
          </thead>
          <tbody>
            {rows.map((s) => (
              <tr key={s.switch} data-switch={s.switch}>
                <th scope="row">
                  <a href={link(["switches", s.switch])}>{s.switch}</a>
                </th>
                <td>
                  <Condition report={s} />
                </td>
                <td class="number">{count(s.ports.length)}</td>
                <td class="number">{count(s.hosts)}</td>
                <td class="number">{count(s.rules)}</td>
                <td class="number">{count(s.groups)}</td>
                <td class="number">{count(s.refusals)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      <Foot
        shown={rows.length}
        total={pages.total}
        more={pages.more}
        isSorted={isSorted}
        what="switch"
        many="switches"
      />
    </>
  );
}

function Condition({ report }: { report: SwitchReport }) {
  const { tone, word, sentence } = condition(report);
  return (
    <Tag tone={tone} title={sentence}>
      {word}
    </Tag>
  );
}

export function NoSwitch({ q = "" }: { q?: string }) {
  if (q) return <Empty title={`No switch matches “${q}”`} />;
  return (
    <Empty title="No switch has connected yet">
      <p>Start one on the controller's machine:</p>
      <pre>tapswitch switch --controller tcp:ADDRESS:6653 --port 1=tap:one0</pre>
      <p>or connect a bridge of Open vSwitch:</p>
      <pre>ovs-vsctl set-controller br0 tcp:ADDRESS:6653</pre>
    </Empty>
  );
}
