// A stand-in controller for sizes and states that no small lab has: a fabric of 1,000 switches, a
// ledger that does not add up, a controller that fails, one that lacks an endpoint.
//
// lab.test.ts tests the page with a real controller.
import { readFileSync } from "node:fs";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import type { Topology } from "../../src/api/types";

export type Answer = unknown | ((request: IncomingMessage, body: string) => unknown);

/** An answer with a status other than 200. */
export class Refusal {
  constructor(
    readonly status: number,
    readonly error: {
      code: string;
      message: string;
      field?: string | null;
      at?: number;
      leader?: string;
    },
  ) {}
}

export class StandIn {
  /** Answers by `METHOD /path` below `/api/v1`; a path may end with `*`. */
  readonly answers = new Map<string, Answer>();
  /** Received requests with methods other than GET. */
  readonly commands: { what: string; body: unknown; mark: string | undefined }[] = [];
  private readonly streams = new Set<ServerResponse>();
  private readonly watchers = new Set<ServerResponse>();
  private readonly sockets = new Set<Socket>();
  private port = 0;
  private server: Server | undefined;

  static async start(): Promise<StandIn> {
    const made = new StandIn();
    made.answers.set("GET /me", {
      name: "local",
      role: "admin",
      version: "0.1.0",
      started_at: "2026-01-01T00:00:00Z",
      has_tokens: false,
    });
    await made.listen();
    return made;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Listens; after `stop` on the same port again. */
  async listen(): Promise<void> {
    this.server = createServer((request, response) => void this.handle(request, response));
    this.server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
    await new Promise<void>((done) => this.server!.listen(this.port, "127.0.0.1", done));
    this.port = (this.server.address() as AddressInfo).port;
  }

  /** Stops and closes all connections, as if killed. */
  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.streams.clear();
    this.watchers.clear();
    await new Promise((done) => this.server!.close(done));
  }

  /** Sends an event to all clients of the event stream. */
  send(event: string, data: object): void {
    for (const stream of this.streams)
      stream.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  get watcherCount(): number {
    return this.watchers.size;
  }

  /** Sends packets to all clients of a packet stream, numbered from `first` in this run. */
  sendPackets(packets: object[], first = 1, run = "a"): void {
    packets.forEach((one, i) => {
      const text = `event: packet\nid: ${run}-${first + i}\ndata: ${JSON.stringify(one)}\n\n`;
      for (const watcher of this.watchers) watcher.write(text);
    });
  }

  serve(topology: Topology): void {
    this.answers.set("GET /topology", topology);
    this.answers.set("GET /policies", list([]));
    this.answers.set("GET /hosts", (request: IncomingMessage) => {
      const id = new URL(request.url!, "http://x").searchParams.get("switch");
      const wanted = topology.switches.filter((s) => id === null || s.switch === id);
      return list(wanted.flatMap((s) => hosts(s.switch, s.hosts)));
    });
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname } = new URL(request.url!, "http://x");
    if (!pathname.startsWith("/api/v1")) return this.file(pathname, response);
    const path = pathname.slice("/api/v1".length);
    const isRefused = this.answers.get(`GET ${path}`) instanceof Refusal;
    if (path === "/events" && !isRefused) return this.stream(request, response, this.streams);
    if (path.endsWith("/packets") && !isRefused)
      return this.stream(request, response, this.watchers);
    let body = "";
    for await (const chunk of request) body += chunk;
    const what = `${request.method} ${decodeURIComponent(path)}`;
    if (request.method !== "GET") {
      const mark = request.headers["x-tapswitch"] as string | undefined;
      this.commands.push({
        what: `${request.method} ${request.url!.slice("/api/v1".length)}`,
        body: body && JSON.parse(body),
        mark,
      });
    }
    const answer =
      this.answers.get(what) ??
      this.answers.get(`${request.method} ${path.replace(/[^/]*$/, "*")}`);
    const value = typeof answer === "function" ? await answer(request, body) : answer;
    this.tell(response, value === undefined ? UNKNOWN : value);
  }

  private tell(response: ServerResponse, value: unknown): void {
    const [status, document] =
      value instanceof Refusal ? [value.status, { error: value.error }] : [200, value];
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(JSON.stringify(document));
  }

  private stream(
    request: IncomingMessage,
    response: ServerResponse,
    all: Set<ServerResponse>,
  ): void {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(": hello\n\n");
    all.add(response);
    request.on("close", () => all.delete(response));
  }

  /** Like `page.rs`, with the same content security policy. */
  private file(pathname: string, response: ServerResponse): void {
    const name = pathname === "/" ? "index.html" : pathname.slice(1);
    try {
      const contents = readFileSync(join(DIST, name));
      const kind = {
        html: "text/html",
        js: "text/javascript",
        css: "text/css",
        svg: "image/svg+xml",
      }[name.split(".").pop()!];
      response.writeHead(200, {
        "Content-Type": `${kind}; charset=utf-8`,
        "Content-Encoding": "br",
        "Content-Security-Policy": POLICY,
      });
      response.end(
        brotliCompressSync(contents, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }),
      );
    } catch {
      response.writeHead(404).end();
    }
  }
}

export const list = (items: unknown[]) => ({ items, next: null, total: items.length });

export const hosts = (id: string, count: number) =>
  Array.from({ length: count }, (_, i) => {
    const hex = (n: number) => n.toString(16).padStart(2, "0");
    const n = parseInt(id, 16);
    const address = `10.${n >> 8}.${n & 255}.${i + 1}`;
    return {
      switch: id,
      port: String(i + 10),
      port_name: `t${i + 10}`,
      vlan: null,
      mac: `02:00:${hex(n >> 8)}:${hex(n & 255)}:00:${hex(i + 1)}`,
      addresses: [address],
      // The first host has sent packets, but no ARP.
      unproven_addresses: i === 0 ? [address] : [],
    };
  });

const UNKNOWN = new Refusal(404, {
  code: "unknown-path",
  message: "there is nothing of this path",
});
const DIST = resolve(process.cwd(), "dist");
/** The policy in `page.rs`. */
const POLICY = (() => {
  const source = readFileSync(resolve(process.cwd(), "../crates/controller/src/page.rs"), "utf8");
  const [, text] = /CONTENT_SECURITY_POLICY,\s*"([^"]*)"/.exec(source) ?? [];
  if (!text) throw new Error("page.rs has no policy");
  return text.replace(/\\\n\s*/g, "");
})();
