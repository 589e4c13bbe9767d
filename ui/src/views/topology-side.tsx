// Beside the picture: the selection, and lists of TAPs, switches and links.
import { useState } from "preact/hooks";
import { mayChange } from "../api/session";
import { type Edge, type Node, nodeCondition } from "../graph/scene";
import { linkWord } from "../graph/load";
import { edgeKey } from "../graph/target";
import { bitRate, count, plural } from "../model/format";
import { ledger, tone, urgency } from "../model/policy";
import { Empty, Failure, Search, Tag, Waiting } from "../parts/basics";
import { rateText } from "../parts/rates";
import { link } from "../parts/route";
import { Selection, type SideProps } from "./topology-selection";

export function Side(props: SideProps) {
  const [list, setList] = useState<"taps" | "switches" | "links">("taps");
  return (
    <aside class="side" aria-label="Selection and lists">
      <Selection {...props} />
      <div class="tabs" role="group" aria-label="Lists">
        <Tab is={list === "taps"} onClick={() => setList("taps")}>
          TAPs {props.taps.total ? count(props.taps.total) : ""}
          {props.taps.problems > 0 && " ▲"}
        </Tab>
        <Tab is={list === "switches"} onClick={() => setList("switches")}>
          Switches
        </Tab>
        <Tab is={list === "links"} onClick={() => setList("links")}>
          Links
        </Tab>
      </div>
      {list === "taps" && <TapList {...props} />}
      {list === "switches" && <SwitchList {...props} />}
      {list === "links" && <LinkList {...props} />}
    </aside>
  );
}

function Tab({
  is,
  onClick,
  children,
}: {
  is: boolean;
  onClick(): void;
  children: preact.ComponentChildren;
}) {
  return (
    <button type="button" aria-pressed={is} onClick={onClick}>
      {children}
    </button>
  );
}

function TapList({ taps, selected, onSelect }: SideProps) {
  if (taps.total === undefined)
    return taps.error ? <Failure error={taps.error} what="TAPs" /> : <Waiting is />;
  if (taps.reports.length === 0) {
    return (
      <Empty title="No policies">
        {mayChange() && (
          <p>
            Click a host or a link, or <a href={link(["new"])}>create a policy</a>.
          </p>
        )}
      </Empty>
    );
  }
  return (
    <>
      <ul class="list">
        {taps.reports.map((report) => {
          const { name } = report.policy;
          const books = ledger(report);
          return (
            <li key={name}>
              <button
                type="button"
                data-tap={name}
                aria-pressed={selected?.kind === "tap" && selected.name === name}
                onClick={() => onSelect({ kind: "tap", name })}
              >
                <span class="list-name">{name}</span>
                <span class="muted">{rateText(name)}</span>
                <Tag tone={tone(report)}>
                  {tone(report) === "good"
                    ? books.word
                    : report.state.is === "active"
                      ? books.word
                      : report.state.is}
                </Tag>
              </button>
            </li>
          );
        })}
      </ul>
      {taps.total > taps.reports.length && (
        <p class="foot">
          {count(taps.reports.length)} of{" "}
          <a href={link(["policies"])}>{plural(taps.total, "policy", "policies")}</a>
          {taps.problems > 0 && (
            <>
              ; <a href={link(["policies"], { show: "problems" })}>{problemsText(taps.problems)}</a>
            </>
          )}
          .
        </p>
      )}
    </>
  );
}

const problemsText = (n: number): string => `${count(n)} ${n === 1 ? "has" : "have"} problems`;

function SwitchList({ shape, selected, onSelect }: SideProps) {
  const [text, setText] = useState("");
  const q = text.trim().toLowerCase();
  const found = shape.nodes.filter(
    (node) => node.id.includes(q) || node.group?.members.some((m) => m.includes(q)),
  );
  const shown = [...found]
    .sort((a, b) => urgency(nodeCondition(a).tone) - urgency(nodeCondition(b).tone))
    .slice(0, MOST_LISTED);
  return (
    <>
      <Search value={text} onChange={setText} label="Search switches" />
      <ul class="list">
        {shown.map((node) => (
          <li key={node.id}>
            <button
              type="button"
              data-node={node.id}
              aria-pressed={selected?.kind === "node" && selected.id === node.id}
              onClick={() => onSelect({ kind: "node", id: node.id })}
            >
              <span class="list-name">
                {node.group ? `${node.switches} switches ${node.id}` : node.id}
              </span>
              <span class="muted">{plural(node.hosts, "host")}</span>
              <Condition of={node} />
            </button>
          </li>
        ))}
      </ul>
      {found.length > shown.length && (
        <p class="foot">
          The first {count(shown.length)} of {count(found.length)}; search for others.
        </p>
      )}
    </>
  );
}

function Condition({ of }: { of: Node }) {
  const { tone, word, sentence } = nodeCondition(of);
  return (
    <Tag tone={tone} title={sentence}>
      {word}
    </Tag>
  );
}

function LinkList({ shape, selected, onSelect }: SideProps) {
  const [text, setText] = useState("");
  if (shape.edges.length === 0) return <Empty title="No links between switches are known" />;
  const q = text.trim().toLowerCase();
  const found = shape.edges.filter((edge) => edgeKey(edge).includes(q));
  const worst = (e: Edge) => (e.link.is_up ? -(e.link.bits_per_second ?? 0) : -Infinity);
  const shown = found.sort((a, b) => worst(a) - worst(b)).slice(0, MOST_LISTED);
  return (
    <>
      <Search value={text} onChange={setText} label="Search links" />
      {found.length === 0 && <Empty title={`No link matches “${text}”`} />}
      <ul class="list">
        {shown.map((edge) => {
          const { is_up, bits_per_second } = edge.link;
          const key = edgeKey(edge);
          return (
            <li key={key}>
              <button
                type="button"
                aria-pressed={selected?.kind === "link" && selected.key === key}
                onClick={() => onSelect({ kind: "link", key })}
              >
                <span class="list-name">{key}</span>
                <span class="muted">{bits_per_second == null ? "" : bitRate(bits_per_second)}</span>
                <Tag tone={is_up ? "good" : "bad"}>{linkWord(edge.link)}</Tag>
              </button>
            </li>
          );
        })}
      </ul>
      {found.length > shown.length && (
        <p class="foot">
          Those that are down and the busiest, {count(shown.length)} of {count(found.length)};
          search for others.
        </p>
      )}
    </>
  );
}

const MOST_LISTED = 100;
