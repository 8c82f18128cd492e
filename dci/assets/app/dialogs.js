// Dialogs: `data-dialog="ID"` opens one, `data-close` closes it; `hx-confirm` asks before it acts.

on("click", "[data-dialog]", (event, opener) => {
  const dialog = document.getElementById(opener.dataset.dialog);
  if (!dialog) return;
  event.preventDefault();
  dialog.showModal();
});
on("click", "dialog [data-close]", (event, button) => { event.preventDefault(); button.closest("dialog").close(); });
// Beside it is outside.
on("pointerdown", "dialog[open]", (event, dialog) => {
  const { left, right, top, bottom } = dialog.getBoundingClientRect();
  const inside = event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
  if (event.target === dialog && !inside) dialog.close();
});

/** Asks; resolves to whether the answer was yes. */
const ask = (question, { yes = "Yes", danger = true } = {}) => new Promise((resolve) => {
  const dialog = find("#ask");
  if (!dialog) return resolve(window.confirm(question));
  find("[data-is=question]", dialog).textContent = question;
  const button = find("[data-is=yes]", dialog);
  button.textContent = yes;
  button.className = danger ? "danger" : "primary";
  dialog.returnValue = "";
  button.onclick = () => dialog.close("yes");
  dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  dialog.showModal();
});

/** What is to be asked because of a field of `form`: an option that is chosen, or a number above `data-above`. */
const questionOf = (form) => {
  const asks = (one) => (one.matches("option") ? one.selected : Number(one.value) > Number(one.dataset.above) && one.value !== one.defaultValue);
  const question = findAll("[data-question]", form).find(asks)?.dataset.question;
  return question && filled(question, form, new FormData(form));
};
document.addEventListener("htmx:confirm", (event) => {
  const { elt, triggeringEvent, issueRequest } = event.detail;
  const question = event.detail.question || questionOf(elt);
  if (!question) return;
  event.preventDefault();
  elt.disbatchButton = triggeringEvent?.submitter ?? null;
  elt.disbatchAsking = true;
  ask(question, { yes: elt.dataset.yes }).then((yes) => {
    elt.disbatchAsking = false;
    if (yes) issueRequest(true);
    else if (elt.matches("[data-inplace]")) elt.reset();
  });
});

// Who is led to what is folded finds it open.
const unfold = () => {
  const named = document.getElementById(location.hash.slice(1));
  if (named?.matches("details")) named.open = true;
};
window.addEventListener("hashchange", unfold);
unfold();

// Tabs: <div data-tabs> with links to the ids of what they show. Without script all of it is shown.
const panelOf = (tab) => document.getElementById(tab.getAttribute("href").slice(1));
const tabsIn = (tabs) => findAll("a[href^='#']", tabs);
const showTabs = (tabs) => {
  tabs.setAttribute("role", "tablist");
  const links = tabsIn(tabs);
  const named = links.find((link) => link.getAttribute("href") === (tabs.disbatchChosen ?? location.hash));
  const chosen = named ?? links[0];
  for (const tab of links) {
    const is = tab === chosen;
    const panel = panelOf(tab);
    tab.id ||= `tab-${tab.getAttribute("href").slice(1)}`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", tab.getAttribute("href").slice(1));
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    if (!panel) continue;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    panel.hidden = !is;
  }
};
const choose = (tab, focus = false) => {
  const tabs = tab.closest("[data-tabs]");
  tabs.disbatchChosen = tab.getAttribute("href");
  showTabs(tabs);
  if (focus) tab.focus();
  tabs.dispatchEvent(new CustomEvent("disbatch:tab", { bubbles: true, detail: { tab } }));
};
on("click", "[data-tabs] a[href^='#']", (event, tab) => { event.preventDefault(); choose(tab); });
on("keydown", "[data-tabs] a[href^='#']", (event, tab) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const links = tabsIn(tab.closest("[data-tabs]"));
  if (step) { event.preventDefault(); choose(links[(links.indexOf(tab) + step + links.length) % links.length], true); }
});
const showAllTabs = () => findAll("[data-tabs]").forEach(showTabs);
document.addEventListener("disbatch:changed", showAllTabs);
showAllTabs();
