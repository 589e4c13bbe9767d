// A real controller with real switches and hosts: runs the binary that TAPSWITCH_BINARY names, in
// the network namespace that scripts/test-ui created. Hosts are in namespaces that are removed with
// the lab.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./support";

const BINARY = process.env.TAPSWITCH_BINARY;

/** Why no lab can run here; `undefined` if one can. */
export const noLab: string | undefined =
  process.getuid?.() !== 0
    ? "needs root to make network namespaces"
    : !existsSync("/dev/net/tun")
      ? "no /dev/net/tun"
      : !BINARY || !existsSync(BINARY)
        ? "TAPSWITCH_BINARY names no binary: cargo build -p tapswitch"
        : undefined;

/** A host: a namespace with a tap device that is a port of a switch. */
export interface Host {
  namespace: string;
  device: string;
  address: string;
  /** Its switch. */
  at: number;
}

/** Number of switches, links between them, and the switch of each host. */
export interface Plan {
  switches: number;
  links: [number, number][];
  hosts: number[];
}

export class Lab {
  readonly hosts: Host[] = [];
  readonly url = "http://127.0.0.1:8653";
  private readonly directory = mkdtempSync(join(tmpdir(), "page-lab-"));
  private readonly programs = new Map<string, ChildProcess>();

  static async open(plan: Plan): Promise<Lab> {
    const lab = new Lab(plan);
    try {
      lab.makeHosts();
      plan.links.forEach((_, n) => lab.makeLink(n));
      await lab.startController();
      for (let n = 1; n <= plan.switches; n++) lab.startSwitch(n);
      await lab.isComplete();
      lab.configureHosts();
    } catch (error) {
      lab.close();
      throw error;
    }
    return lab;
  }

  private constructor(private readonly plan: Plan) {}

  async startController(): Promise<void> {
    const store = join(this.directory, "controller.redb");
    const socket = join(this.directory, "controller.sock");
    this.start("controller", [
      "controller",
      "--listen",
      "tcp:127.0.0.1:6653",
      "--rest",
      "127.0.0.1:8653",
      "--store",
      store,
      "--socket",
      socket,
    ]);
    await until("the controller answers", () => this.ask("/me").then(Boolean, () => false));
  }

  /** Ports 1, 2, … of a switch are hosts; 101, 102, … are links in the order of the plan. */
  startSwitch(n: number): void {
    const mine = this.hosts.filter((host) => host.at === n);
    const ports = mine.map((host, i) => `${i + 1}=tap:${host.device},netns=${host.namespace}`);
    const ends = this.plan.links.flatMap(([a, b], i) =>
      a === n ? [`a${i}`] : b === n ? [`b${i}`] : [],
    );
    ends.forEach((end, i) => ports.push(`${101 + i}=netdev:${end}`));
    const socket = join(this.directory, `switch${n}.sock`);
    const args = [
      "switch",
      "--datapath-id",
      `0x${n.toString(16)}`,
      "--controller",
      "tcp:127.0.0.1:6653",
      "--fail-mode",
      "secure",
      "--workers",
      "1",
      "--socket",
      socket,
    ];
    this.start(`switch${n}`, [...args, ...ports.flatMap((port) => ["--port", port])]);
  }

  /** Kills a program, without a chance to clean up. */
  async kill(name: string): Promise<void> {
    const program = this.programs.get(name)!;
    const ended = new Promise((done) => program.once("exit", done));
    program.kill("SIGKILL");
    await ended;
    this.programs.delete(name);
  }

  /** Fetches data from the controller. */
  async ask(path: string): Promise<any> {
    const response = await fetch(`${this.url}/api/v1${path}`);
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    return response.json();
  }

  /** Sends a change as a script would. */
  async command(method: string, path: string, body?: unknown): Promise<void> {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers,
      body: JSON.stringify(body),
    });
    if (!response.ok)
      throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  }

  /** Pings until killed. */
  keepTalking(from: Host, to: string): ChildProcess {
    const args = ["netns", "exec", from.namespace, "ping", "-q", "-i", "0.01", "-s", "1000", to];
    return spawn("ip", args, { stdio: "ignore" });
  }

  /** Makes the hosts send traffic, so that the controller learns their ports. */
  async introduce(): Promise<void> {
    // A restarted controller learns addresses only from the next ARP.
    for (const { namespace } of this.hosts) run("ip", ["-n", namespace, "neigh", "flush", "all"]);
    for (const host of this.hosts.slice(1)) {
      await until(`${host.address} answers`, () => this.ping(this.hosts[0]!, host.address, 1));
    }
    await until("all hosts are known", async () => {
      const { items } = await this.ask("/hosts?limit=1000");
      const known = items.flatMap((host: { addresses: string[] }) => host.addresses);
      return this.hosts.every(({ address }) => known.includes(address));
    });
  }

  /** Sends `count` pings; returns whether all were answered. */
  ping(from: Host, to: string, count: number): boolean {
    try {
      execFileSync(
        "ip",
        [
          "netns",
          "exec",
          from.namespace,
          "ping",
          "-q",
          "-c",
          `${count}`,
          "-i",
          "0.01",
          "-W",
          "1",
          to,
        ],
        { stdio: "pipe" },
      );
      return true;
    } catch {
      return false;
    }
  }

  /** Configures the hosts' devices, also after a switch created them again. */
  configureHosts(): void {
    for (const { namespace, device, address } of this.hosts) {
      const ip = (...args: string[]) => run("ip", ["-n", namespace, ...args]);
      ip("link", "set", device, "up");
      ip("address", "replace", `${address}/24`, "dev", device);
    }
  }

  /** Waits until all switches are connected and all links are known. */
  async isComplete(): Promise<void> {
    await until("all switches are connected and all links known", async () => {
      const { switches, links } = await this.ask("/topology");
      const connected = switches.filter((one: { is_connected: boolean }) => one.is_connected);
      const up = links.filter((one: { is_up: boolean }) => one.is_up);
      return connected.length === this.plan.switches && up.length === this.plan.links.length;
    });
  }

  log(name: string): string {
    return readFileSync(join(this.directory, `${name}.log`), "utf8");
  }

  close(): void {
    for (const program of this.programs.values()) program.kill("SIGKILL");
    for (const { namespace } of this.hosts) run("ip", ["netns", "delete", namespace]);
    this.plan.links.forEach((_, n) => {
      try {
        run("ip", ["link", "delete", `a${n}`]);
      } catch {
        // The link was not created yet.
      }
    });
    rmSync(this.directory, { recursive: true, force: true });
  }

  private makeHosts(): void {
    for (const [i, at] of this.plan.hosts.entries()) {
      const namespace = `page-${process.pid}-${i + 1}`;
      run("ip", ["netns", "add", namespace]);
      this.hosts.push({ namespace, device: `t${i + 1}`, address: `10.0.0.${i + 1}`, at });
      run("ip", ["-n", namespace, "link", "set", "lo", "up"]);
    }
  }

  private makeLink(n: number): void {
    run("ip", ["link", "add", `a${n}`, "type", "veth", "peer", "name", `b${n}`]);
    for (const end of [`a${n}`, `b${n}`]) {
      // Keeps the kernel from sending neighbour discovery on the link.
      writeFileSync(`/proc/sys/net/ipv6/conf/${end}/disable_ipv6`, "1");
      run("ip", ["link", "set", end, "up"]);
    }
  }

  private start(name: string, args: string[]): void {
    const log = openSync(join(this.directory, `${name}.log`), "a");
    const program = spawn(BINARY!, args, { stdio: ["ignore", log, log] });
    this.programs.set(name, program);
  }
}

function run(program: string, args: string[]): void {
  execFileSync(program, args, { stdio: "pipe" });
}
