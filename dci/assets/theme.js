// Before anything is painted: the theme that was chosen here, and a mark that there are scripts.
"use strict";
(() => {
  const root = document.documentElement;
  root.dataset.js = "";
  try {
    const theme = localStorage.getItem("disbatch.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch { /* Without storage the system's theme it is. */ }
})();
