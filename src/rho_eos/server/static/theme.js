/** Light or dark: the system's choice until the reader makes their own. */

import { recall, remember } from "./storage.js";

const KEY = "rho-eos-theme";
const storage = () => localStorage;

export function installTheme(button) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => document.documentElement.dataset.theme;
  const isDark = () => (chosen() ? chosen() === "dark" : dark.matches);
  const show = () => {
    button.setAttribute(
      "aria-label",
      isDark() ? "Switch to light colours" : "Switch to dark colours",
    );
    button.setAttribute("aria-pressed", String(isDark()));
  };
  const remembered = recall(storage, KEY);
  if (["light", "dark"].includes(remembered)) document.documentElement.dataset.theme = remembered;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember(storage, KEY, chosen());
    show();
  });
  dark.addEventListener("change", show);
  show();
}
