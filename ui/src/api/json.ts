// The controller's JSON, with all that is in its texts to be seen.

/**
 * Reads JSON. What is not seen, and turns around or hides what is beside it (Unicode TR 36), is
 * written out as the controller does it in its own messages: an owner, a reason or a name that was
 * refused is not to make a record of the audit log read as another one.
 *
 * The controller sends all characters as they are; of JSON itself none is such, so each is in a text.
 */
export const parse = (json: string): unknown =>
  JSON.parse(json.replace(UNSEEN, (char) => `\\\\u{${char.codePointAt(0)!.toString(16)}}`));

/** Formats without being seen, and other ends of lines. */
const UNSEEN = /[\p{Cf}\p{Zl}\p{Zp}]/gu;
