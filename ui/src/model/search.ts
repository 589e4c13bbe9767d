// Whether something has a text in it.

/** In one of its values, whatever its case: as the controller searches its lists. */
export function hasText(value: unknown, text: string): boolean {
  if (typeof value === "string" || typeof value === "number")
    return String(value).toLowerCase().includes(text.toLowerCase());
  return (
    typeof value === "object" &&
    value !== null &&
    Object.values(value).some((part) => hasText(part, text))
  );
}
