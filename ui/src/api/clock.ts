// The controller's clock, which decides when policies end.
import { signal } from "@preact/signals";
import { listen } from "./live";

/** How far the browser's clock is ahead of the controller's, in milliseconds. */
export const aheadMs = signal(0);

listen((topic, event) => {
  const ahead = topic === "tick" ? Date.now() - Date.parse(String(event.at)) : NaN;
  // Shorter differences are those of the way here.
  if (!Number.isNaN(ahead)) aheadMs.value = Math.abs(ahead) < LEAST_MS ? 0 : ahead;
});

const LEAST_MS = 2000;
