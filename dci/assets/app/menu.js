// The menu of further places: <details class="further">. Where it lies over the page it closes with Escape, and when something
// else is used. In a narrow window it is part of the column of places, and stays as it was left.
{
  const menu = find(".places .further");
  const summary = menu && find("summary", menu);
  const inColumn = matchMedia("(max-width: 75rem)");
  const liesOver = () => Boolean(menu?.open) && !inColumn.matches;
  // Who is told nothing of what is closed learns here that the page is one of these.
  if (menu && find("[aria-current]", menu)) summary.setAttribute("aria-current", "true");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !liesOver() || find("dialog[open]")) return;
    if (menu.contains(document.activeElement)) summary.focus();
    menu.open = false;
  });
  menu?.addEventListener("focusout", ({ relatedTarget }) => {
    // Without one it is the window that is left, or a place that takes no focus, which is seen to below.
    if (relatedTarget && liesOver() && !menu.contains(relatedTarget)) menu.open = false;
  });
  document.addEventListener("pointerdown", ({ target }) => { if (liesOver() && !menu.contains(target)) menu.open = false; });
  window.addEventListener("pagehide", () => { if (liesOver()) menu.open = false; });
}
