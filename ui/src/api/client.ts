// Requests to the controller, with errors as values that views can show.
import { parse } from "./json";

/** Why a request failed, with the controller's message if there is one. */
export class ApiError extends Error {
  constructor(
    /** HTTP status; 0 without a response. */
    readonly status: number,
    readonly code: string,
    message: string,
    /** The policy field that the error is about. */
    readonly field: string | null = null,
    /** Offset of the error in the filter, in bytes. */
    readonly at: number | null = null,
    /** URL of the leading controller's page if this controller does not lead. */
    readonly leader: string | null = null,
  ) {
    super(message);
  }

  /** Whether a retry may succeed: with 421, another controller may lead by then. */
  get mayHeal(): boolean {
    return this.status === 0 || this.status === 421 || this.status >= 500;
  }

  /** Whether the controller lacks the endpoint, as opposed to an object that does not exist. */
  get isMissingEndpoint(): boolean {
    return [404, 405, 501].includes(this.status) && MISSING_CODES.has(this.code);
  }
}

export const BASE = "/api/v1";

/** Sets the callback for requests that the controller refuses for lack of a token. */
export const whenNoToken = (told: () => void): void => {
  noToken = told;
};
let noToken = (): void => {};

/** Sends a GET request. */
export const get = <T>(path: string, signal?: AbortSignal): Promise<T> =>
  request<T>("GET", path, undefined, signal);

/** Sends a request; `body` is sent as JSON. */
export async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  // CSRF protection: a form of another site cannot send this header.
  if (method !== "GET") headers["X-Tapswitch"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init = { method, headers, body: JSON.stringify(body), signal };
  let response: Response;
  try {
    response = await fetch(BASE + path, { credentials: "same-origin", ...init });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The controller does not answer; retrying.");
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

/**
 * Whether a value from the controller is safe as a link: `javascript:` and other schemes are not.
 */
function isWebAddress(value: unknown): value is string {
  return typeof value === "string" && /^https?:\/\//.test(value);
}

/** Parses JSON; `undefined` if it is invalid. */
function data(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** Error codes of a controller that lacks the endpoint or does not support the method there. */
const MISSING_CODES = new Set(["", "unknown-path", "unknown-method", "not-offered"]);

/** A query string of the parameters that are set. */
export function query(parts: Record<string, string | number | null | undefined>): string {
  const set = Object.entries(parts).filter(([, value]) => value != null && value !== "");
  const words = set.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`);
  return words.length ? `?${words.join("&")}` : "";
}
