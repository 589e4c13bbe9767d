// The rules and groups of a switch: those that the controller installed, compared with those that
// the switch reports.
import { Fragment } from "preact";
import { useState } from "preact/hooks";
import type { Topic } from "../api/live";
import type { Counts, GroupReport, RuleReport, Standing } from "../api/types";
import { count, duration, size } from "../model/format";
import type { Tone } from "../model/policy";
import { Empty, Search, Table, Tag, Unanswered, useSettled } from "../parts/basics";
import { Foot } from "../parts/list";
import { usePages } from "../parts/pages";
import { link } from "../parts/route";

/** A small first page: a switch may have many rules. */
const FRESH: { topics: Topic[]; everyMs: number; step: number } = {
  topics: ["policy"],
  everyMs: 3000,
  step: 25,
};

const STANDINGS: Record<Standing, [Tone, string, string]> = {
  "in-place": ["good", "in place", "The switch has it as installed."],
  missing: ["bad", "missing", "It is being installed, or the switch refused it."],
  other: ["bad", "differs", "The switch has it with different contents."],
  surplus: ["wait", "surplus", "Installed by this controller, to be removed."],
  foreign: ["plain", "foreign", "Not installed by this controller; left alone."],
  unread: ["wait", "not read", "The switch did not report it."],
};

/** Purposes of our tables; other tables are not named. */
const TABLES: Record<number, string> = { 0: "senders", 1: "copies", 2: "forwarding" };

const PURPOSES: Record<string, string> = {
  base: "base",
  host: "host",
  way: "path to a host",
  port: "port",
  carry: "copies from other switches",
  copies: "copies",
  foreign: "foreign",
};

export function Rules({ id }: { id: string }) {
  const [text, setText] = useState("");
  const [table, setTable] = useState("");
  const q = useSettled(text.trim());
  const path = `/switches/${encodeURIComponent(id)}/rules`;
  const pages = usePages<RuleReport>(path, { q, table }, FRESH);
  return (
    <section aria-labelledby="rules">
      <h2 id="rules">Rules</h2>
      <div class="tools">
        <select
          aria-label="Table"
          value={table}
          onChange={(event) => setTable(event.currentTarget.value)}
        >
          <option value="">All tables</option>
          {Object.entries(TABLES).map(([number, words]) => (
            <option key={number} value={number}>
              Table {number}: {words}
            </option>
          ))}
        </select>
        <Search value={text} onChange={setText} label="Search rules" />
      </div>
      <Unanswered of={pages} what="Rules" />
      {pages.data && pages.items.length === 0 && <Empty title="No matching rules" />}
      {pages.items.length > 0 && (
        <Table label="All rules">
          <Head
            words={["Table", "Priority", "Matches", "Actions", "For", "State"]}
            numbers={["Packets", "Bytes", "Age"]}
          />
          <tbody>
            {pages.items.map((rule) => (
              <Rule key={`${rule.table} ${rule.priority} ${rule.matches}`} rule={rule} />
            ))}
          </tbody>
        </Table>
      )}
      <Foot shown={pages.items.length} {...pages} what="rule" many="rules" />
    </section>
  );
}

function Rule({ rule }: { rule: RuleReport }) {
  return (
    <tr>
      <th scope="row">{rule.table}</th>
      <td>{rule.priority}</td>
      <td class="wide">{rule.matches ? <Terms text={rule.matches} /> : "everything else"}</td>
      <td class="wide">
        <Terms text={rule.actions} />
      </td>
      <td>
        {PURPOSES[rule.purpose] ?? rule.purpose}
        <Names policies={rule.policies} />
      </td>
      <td>
        <State of={rule.standing} />
      </td>
      <Counted counts={rule.counts} />
      <td class="number">{rule.age_s === null ? "–" : duration(rule.age_s * 1000)}</td>
    </tr>
  );
}

export function Groups({ id }: { id: string }) {
  const path = `/switches/${encodeURIComponent(id)}/groups`;
  const pages = usePages<GroupReport>(path, {}, FRESH);
  return (
    <section aria-labelledby="groups">
      <h2 id="groups">Groups</h2>
      <Unanswered of={pages} what="Groups" />
      {pages.data && pages.items.length === 0 && (
        <Empty title="No groups: this switch makes no copies" />
      )}
      {pages.items.length > 0 && (
        <Table label="All groups">
          <Head
            words={["Group", "Kind", "Buckets", "For", "State"]}
            numbers={["Rules", "Packets", "Bytes"]}
          />
          <tbody>
            {pages.items.map((group) => (
              <Group key={group.group} group={group} />
            ))}
          </tbody>
        </Table>
      )}
      <Foot shown={pages.items.length} {...pages} what="group" many="groups" />
    </section>
  );
}

function Group({ group }: { group: GroupReport }) {
  return (
    <tr>
      <th scope="row">0x{group.group.toString(16)}</th>
      <td>{group.kind}</td>
      <td class="wide">
        <ol class="plain">
          {group.buckets.map(({ actions, counts }, i) => (
            <li key={i}>
              <Terms text={actions} />{" "}
              {counts && <span class="muted">{count(counts.packets)} packets</span>}
            </li>
          ))}
        </ol>
      </td>
      <td>
        <Names policies={group.policies} />
      </td>
      <td>
        <State of={group.standing} />
      </td>
      <td class="number">{group.rules === null ? "–" : count(group.rules)}</td>
      <Counted counts={group.counts} />
    </tr>
  );
}

function Head({ words, numbers }: { words: string[]; numbers: string[] }) {
  return (
    <thead>
      <tr>
        {words.map((word) => (
          <th key={word} scope="col">
            {word}
          </th>
        ))}
        {numbers.map((word) => (
          <th key={word} scope="col" class="number">
            {word}
          </th>
        ))}
      </tr>
    </thead>
  );
}

function State({ of }: { of: Standing }) {
  const [tone, word, sentence] = STANDINGS[of];
  return (
    <Tag tone={tone} title={sentence}>
      {word}
    </Tag>
  );
}

function Names({ policies }: { policies: string[] }) {
  return (
    <>
      {policies.map((name) => (
        <>
          {" "}
          <a href={link(["policies", name])}>{name}</a>
        </>
      ))}
    </>
  );
}

function Counted({ counts }: { counts: Counts | null }) {
  return (
    <>
      <td class="number">{counts ? count(counts.packets) : "–"}</td>
      <td class="number">{counts ? size(counts.bytes) : "–"}</td>
    </>
  );
}

/** Matches or actions of a rule; lines break after commas rather than within words. */
function Terms({ text }: { text: string }) {
  const parts = text.split(/(?<=,)/);
  return (
    <code>
      {parts.map((part, i) => (
        <Fragment key={i}>
          {part}
          <wbr />
        </Fragment>
      ))}
    </code>
  );
}
