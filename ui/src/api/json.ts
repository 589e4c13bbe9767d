// The controller's JSON, with invisible characters made visible.

/**
 * Parses JSON, with invisible characters that hide or reorder the text around them (Unicode TR 36)
 * written as escapes, as in the controller's own messages. Otherwise the owner, reason or refused
 * name in a record of the audit log could make it read as another record.
 *
 * The controller sends all characters unescaped. JSON's syntax contains none of these, so each of
 * them is in a string.
 */
export const parse = (json: string): unknown =>
  JSON.parse(json.replace(UNSEEN, (char) => `\\\\u{${char.codePointAt(0)!.toString(16)}}`));

/** Invisible format characters, and line and paragraph separators. */
const UNSEEN = /[\p{Cf}\p{Zl}\p{Zp}]/gu;
