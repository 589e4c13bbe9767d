// The current view: the fragment of the URL, after `#`.
import { signal } from "@preact/signals";

export interface Route {
  /** `["policies", "web"]` of `#/policies/web`. */
  parts: string[];
  query: URLSearchParams;
}

export const route = signal<Route>(parse(location.hash));
addEventListener("hashchange", () => (route.value = parse(location.hash)));

export function parse(hash: string): Route {
  const [path = "", query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path
    .split("/")
    .filter((part) => part !== "")
    .map(decode);
  return { parts: parts.length ? parts : ["topology"], query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The URL of a view. */
export function link(parts: string[], query?: Record<string, string>): string {
  const path = parts.map(encodeURIComponent).join("/");
  const words = query && Object.keys(query).length ? `?${new URLSearchParams(query)}` : "";
  return `#/${path}${words}`;
}

export const go = (parts: string[], query?: Record<string, string>): void => {
  location.hash = link(parts, query);
};
