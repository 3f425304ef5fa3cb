/** Light or dark: the system's choice until the reader makes their own. */

const KEY = "rho-eos-theme";

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
  const remembered = recall();
  if (remembered) document.documentElement.dataset.theme = remembered;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember(chosen());
    show();
  });
  dark.addEventListener("change", show);
  show();
}

function recall() {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === "light" || theme === "dark" ? theme : null;
  } catch {
    return null; // storage may be switched off; the page works without
  }
}

function remember(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // as above
  }
}
