// Light or dark: the system's choice until the reader makes one.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

export const theme = signal<Theme>(stored());
/** Changes with the colours that are in force. */
export const colours = signal(0);

const system = matchMedia("(prefers-color-scheme: dark)");
system.addEventListener("change", paint);
theme.subscribe((chosen) => {
  paint();
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // A browser without storage forgets the choice, no more.
  }
});

/** The style sheet knows light and dark; what the system's choice is, is found out here. */
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
