// The frame around the views: navigation, connection state, alarms.
import { useEffect, useRef, useState } from "preact/hooks";
import { mismatches } from "./api/history";
import { alarms, liveness, lostAt } from "./api/live";
import { isAdmin, session, signOut } from "./api/session";
import type { Me } from "./api/types";
import { duration, plural } from "./model/format";
import { Heading, useNow } from "./parts/basics";
import { link, route } from "./parts/route";
import { SignIn } from "./parts/session-view";
import { type Theme, theme } from "./parts/theme";
import { Audit } from "./views/audit";
import { Charts } from "./views/charts";
import { Events } from "./views/events";
import { Packets } from "./views/packets";
import { Policies } from "./views/policies";
import { Policy } from "./views/policy";
import { PolicyForm } from "./views/policy-form";
import { Switch } from "./views/switch";
import { Switches } from "./views/switches";
import { TopologyView } from "./views/topology";

export function App() {
  const { value } = session;
  if (value.is === "starting") return <p class="starting">Loading …</p>;
  if (value.is === "out") return <SignIn reason={value.reason} />;
  if (value.is === "unreachable") return <Unreachable />;
  return <Shell me={value.me} />;
}

function Unreachable() {
  return (
    <main class="sign-in" id="main">
      <h1>The controller does not answer</h1>
      <p role="status">This page retries every few seconds and continues by itself.</p>
    </main>
  );
}

function Shell({ me }: { me: Me }) {
  const { parts } = route.value;
  useArrival(parts);
  return (
    <>
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to content
      </a>
      <header class="bar">
        <a class="brand" href={link(["topology"])}>
          tapswitch
        </a>
        <Navigation current={parts[0] === "new" ? "policies" : (parts[0] ?? "")} />
        <div class="status">
          <Mismatches />
          <Connection />
          <ThemeChoice />
          <span class="who" title={`tapswitch ${me.version}`}>
            {me.name} <span class="muted">({me.role})</span>
          </span>
          {me.has_tokens && (
            <button type="button" onClick={() => void signOut()}>
              Sign out
            </button>
          )}
        </div>
      </header>
      <Lost />
      <Alarms />
      <main id="main" tabIndex={-1} aria-labelledby="title">
        <View parts={parts} />
      </main>
    </>
  );
}

function View({ parts }: { parts: string[] }) {
  const [view, name, more] = parts;
  switch (view) {
    case "topology":
      return <TopologyView />;
    case "policies":
      if (name === undefined) return <Policies />;
      if (more === "packets") return <Packets key={name} name={name} />;
      if (more === "edit") return <PolicyForm key={`edit ${name}`} name={name} />;
      return <Policy key={name} name={name} />;
    case "new":
      return <PolicyForm key={`new ${route.value.query}`} />;
    case "switches":
      return name === undefined ? <Switches /> : <Switch key={name} id={name} />;
    case "charts":
      return <Charts />;
    case "events":
      return <Events />;
    case "audit":
      return <Audit />;
    default:
      return (
        <>
          <Heading title="Page not found" />
          <p>
            <a href={link(["topology"])}>Go to the topology</a>
          </p>
        </>
      );
  }
}

function Navigation({ current }: { current: string }) {
  const views = VIEWS.filter(([id]) => id !== "audit" || isAdmin());
  return (
    <nav aria-label="Views">
      {views.map(([id, title]) => (
        <a key={id} href={link([id])} aria-current={current === id ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

const VIEWS: [string, string][] = [
  ["topology", "Topology"],
  ["policies", "Policies"],
  ["switches", "Switches"],
  ["charts", "Charts"],
  ["events", "Events"],
  ["audit", "Audit"],
];

function Connection() {
  const { value } = liveness;
  const words = {
    connecting: "connecting",
    live: "live",
    lost: "no connection",
    polled: "polling",
    follows: "follows another controller",
  };
  const tone = value === "live" ? "good" : value === "lost" ? "bad" : "wait";
  return (
    <span class={`tag ${tone}`} role="status" data-liveness={value}>
      <span aria-hidden="true">{tone === "good" ? "●" : tone === "bad" ? "▲" : "◐"}</span>{" "}
      {words[value]}
    </span>
  );
}

/** The number of policies whose ledger does not add up, as a link to them. */
function Mismatches() {
  const { value } = mismatches;
  return (
    <span role="status">
      {value > 0 && (
        <a class="tag bad" href={link(["policies"], { show: "problems" })}>
          <span aria-hidden="true">▲</span>{" "}
          {plural(value, "policy does not add up", "policies do not add up")}
        </a>
      )}
    </span>
  );
}

/** Shows the age of the data while the connection is lost. */
function Lost() {
  if (liveness.value !== "lost") return null;
  return <LostFor since={lostAt.value} />;
}

function LostFor({ since }: { since: number }) {
  const ms = useNow() - since;
  return (
    <p class="lost" role="alert">
      The connection to the controller is lost; this data is{" "}
      <span aria-hidden="true">{duration(ms)} </span>
      old. Reconnecting … Switches keep forwarding with their current rules.
    </p>
  );
}

/** The newest alarm, which screen readers announce. */
function Alarms() {
  const [seen, setSeen] = useState<unknown>();
  const newest = alarms.value[0];
  const isShown = newest !== undefined && newest.id !== seen;
  return (
    <div aria-live="assertive" class="alarms">
      {isShown && (
        <p class="alarm">
          <span>
            <strong>Alarm: </strong>
            {String(newest.message ?? newest.text ?? newest.reason ?? "see the events")}
          </span>
          <a href={link(["events"])}>Events</a>
          <button type="button" onClick={() => setSeen(newest.id)}>
            Dismiss
          </button>
        </p>
      )}
    </div>
  );
}

function ThemeChoice() {
  return (
    <select
      aria-label="Colours"
      title="Colours"
      value={theme.value}
      onChange={(event) => (theme.value = event.currentTarget.value as Theme)}
    >
      <option value="system">System</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}

/** Sets the title of a new view, scrolls to its top and moves the focus there. */
function useArrival(parts: string[]): void {
  const words = parts.join(" ");
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${words} – tapswitch`;
    if (!isFirst.current) {
      scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    isFirst.current = false;
  }, [words]);
}

/** The fragment of the URL selects the view, so this link must not change it. */
function skipToMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
