// Light, dark or as the system says; and the same colours for canvases.

const KEY = "paceline-theme";
const ORDER = ["auto", "light", "dark"];
const listeners = new Set();
let cached = null;

function stored() {
  try { return localStorage.getItem(KEY) ?? "auto"; } catch { return "auto"; }
}

function apply(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  cached = null;
  for (const listener of listeners) listener();
}

/** Make `button` switch between auto, light and dark. */
export function initTheme(button) {
  let choice = stored();
  const show = () => {
    button.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[choice];
    button.title = "Switch between the system's theme, light and dark";
  };
  button.addEventListener("click", () => {
    choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
    try { localStorage.setItem(KEY, choice); } catch { /* private mode */ }
    apply(choice);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(choice));
  apply(choice);
  show();
}

/** Call `listener` whenever colours change; returns a function that ends it. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const NAMES = [
  "paper", "surface", "ink", "ink-2", "ink-3", "line", "line-2", "bad", "bad-soft", "focus", "focus-soft",
  "host", "input", "forward", "backward", "optimizer", "copy", "checkpoint", "work", "comm", "wait", "heat-0", "heat-1", "heat-2", "hatch",
  "on-host", "on-input", "on-forward", "on-backward", "on-optimizer", "on-copy", "on-checkpoint", "on-work",
];

/** Return the colours of the present theme by name, as CSS colour strings. */
export function colours() {
  if (cached) return cached;
  const style = getComputedStyle(document.documentElement);
  cached = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return cached;
}
