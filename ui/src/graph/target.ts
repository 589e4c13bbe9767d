// The selected object of the picture, or the one under the pointer.
import type { LinkEnd } from "../api/types";
import type { Edge } from "./scene";

export type Target =
  | { kind: "node"; id: string }
  | { kind: "link"; key: string }
  | { kind: "host"; mac: string; switch: string }
  | { kind: "tap"; name: string };

/** Identifies a link, also for the reader: `0x1/3 – 0x2/4`. */
export const edgeKey = ({ link: { a, b } }: Edge): string => `${endText(a)} – ${endText(b)}`;

const endText = ({ switch: id, port }: LinkEnd): string => (port === null ? id : `${id}/${port}`);

export function isSame(a: Target | undefined, b: Target | undefined): boolean {
  return a !== undefined && b !== undefined && a.kind === b.kind && keyOf(a) === keyOf(b);
}

function keyOf(target: Target): string {
  switch (target.kind) {
    case "node":
      return target.id;
    case "link":
      return target.key;
    case "host":
      return `${target.mac} ${target.switch}`;
    case "tap":
      return target.name;
  }
}
