// Requests to the controller, and its errors as values that views can show.
import { parse } from "./json";

/** Why a request failed: the controller's own words where it had some. */
export class ApiError extends Error {
  constructor(
    /** 0 when nothing came back. */
    readonly status: number,
    readonly code: string,
    message: string,
    /** The field of a policy that it is about. */
    readonly field: string | null = null,
    /** Where in a filter. */
    readonly at: number | null = null,
    /** Where the page of the controller is that leads, when this one does not. */
    readonly leader: string | null = null,
  ) {
    super(message);
  }

  /** It may be answered later without anybody's help: another controller may lead by then. */
  get mayHeal(): boolean {
    return this.status === 0 || this.status === 421 || this.status >= 500;
  }

  /** The controller has no such endpoint: not a thing that is not found there. */
  get isMissingEndpoint(): boolean {
    return [404, 405, 501].includes(this.status) && MISSING_CODES.has(this.code);
  }
}

export const BASE = "/api/v1";

/** Has somebody told when the controller wants a token. */
export const whenNoToken = (told: () => void): void => {
  noToken = told;
};
let noToken = (): void => {};

/** Asks for something. */
export const get = <T>(path: string, signal?: AbortSignal): Promise<T> =>
  request<T>("GET", path, undefined, signal);

/** Changes something; `body` is sent as JSON. */
export async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  // No form of another site can send this header.
  if (method !== "GET") headers["X-Tapswitch"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init = { method, headers, body: JSON.stringify(body), signal };
  let response: Response;
  try {
    response = await fetch(BASE + path, { credentials: "same-origin", ...init });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The controller does not answer. It is tried again.");
  }
  const text = await response.text();
  if (response.status === 401) noToken();
  if (!response.ok) throw asError(response.status, text);
  return (text === "" ? undefined : data(text)) as T;
}

export function asError(status: number, text: string): ApiError {
  const error = (data(text) as { error?: Record<string, unknown> } | undefined)?.error;
  if (!error) return new ApiError(status, "", `The controller answered with status ${status}.`);
  return new ApiError(
    status,
    String(error.code ?? ""),
    String(error.message ?? `status ${status}`),
    typeof error.field === "string" ? error.field : null,
    typeof error.at === "number" ? error.at : null,
    isWebAddress(error.leader) ? error.leader : null,
  );
}

/** What may be behind a link: whatever a controller says, nothing that a click would run. */
function isWebAddress(value: unknown): value is string {
  return typeof value === "string" && /^https?:\/\//.test(value);
}

/** Data; `undefined` where an answer is none. */
function data(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** Codes that say: this controller has no such endpoint, or does not do that there. */
const MISSING_CODES = new Set(["", "unknown-path", "unknown-method", "not-offered"]);

/** A query string of what is set. */
export function query(parts: Record<string, string | number | null | undefined>): string {
  const set = Object.entries(parts).filter(([, value]) => value != null && value !== "");
  const words = set.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`);
  return words.length ? `?${words.join("&")}` : "";
}
