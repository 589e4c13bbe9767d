// Light or dark colours: the system's preference unless the user chooses.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

export const theme = signal<Theme>(stored());
/** Changes whenever other colours come into force. */
export const colours = signal(0);

const system = matchMedia("(prefers-color-scheme: dark)");
system.addEventListener("change", paint);
theme.subscribe((chosen) => {
  paint();
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Without storage, the choice is lost when the page closes.
  }
});

/** Sets light or dark for the style sheet, after resolving the system's preference. */
function paint(): void {
  const isDark = theme.value === "system" ? system.matches : theme.value === "dark";
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  colours.value += 1;
}

function stored(): Theme {
  try {
    const value = localStorage.getItem("tapswitch-theme");
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

const KEY = "tapswitch-theme";
