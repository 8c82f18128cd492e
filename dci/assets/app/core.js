// All pages. The files of this folder are served as one module, in the order in which `assets.rs` names them.
// Others may use what is in `window.disbatch`.

const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];

/** An element with attributes and children. Text stays text. */
const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

/** What this browser remembers, which may be nothing. */
const memory = {
  get(key, from = localStorageOrNone()) { try { return from?.getItem(`disbatch.${key}`) ?? null; } catch { return null; } },
  set(key, value, from = localStorageOrNone()) {
    try { value === null ? from?.removeItem(`disbatch.${key}`) : from?.setItem(`disbatch.${key}`, value); } catch { /* Then it is forgotten. */ }
  },
};
function localStorageOrNone() { try { return window.localStorage; } catch { return null; } }
function sessionStorageOrNone() { try { return window.sessionStorage; } catch { return null; } }

/** Runs `act(event, element)` for events on elements that match, now and later. */
const on = (type, selector, act, capture = false) => document.addEventListener(type, (event) => {
  const element = event.target instanceof Element ? event.target.closest(selector) : null;
  if (element) act(event, element);
}, capture);

const isField = (element) => element?.matches?.("input:not([type=checkbox], [type=radio], [type=button], [type=submit]), select, textarea, [contenteditable]") ?? false;

// What an action said

const TOAST_STAYS = 8000;

/** Only what is within the part that fills the screen is seen there. */
const showToasts = () => {
  const [place, top] = [find("#toasts"), document.fullscreenElement ?? document.body];
  if (place && place.parentElement !== top) top.append(place);
};
document.addEventListener("fullscreenchange", showToasts);

/** Says what was done. `undo` is run when its button is pressed. Failures stay until they are closed. */
const toast = (text, { tone = "good", undo = null } = {}) => {
  const box = make("div", { class: `toast ${tone}` }, make("p", {}, text));
  let timer = null;
  const close = () => { clearTimeout(timer); box.remove(); };
  if (undo) {
    const button = make("button", { type: "button", class: "small" }, "Undo");
    button.addEventListener("click", () => { close(); undo(); });
    box.append(button);
  }
  const closing = make("button", { type: "button", class: "small quiet", "aria-label": "Close this message" }, "✕");
  closing.addEventListener("click", close);
  box.append(closing);
  const stay = () => clearTimeout(timer);
  const leave = () => { stay(); if (tone !== "bad") timer = setTimeout(close, undo ? 2 * TOAST_STAYS : TOAST_STAYS); };
  box.addEventListener("pointerenter", stay);
  box.addEventListener("pointerleave", leave);
  box.addEventListener("focusin", stay);
  box.addEventListener("focusout", leave);
  leave();
  const place = find("#toasts");
  showToasts();
  place?.append(box);
  while (place && place.children.length > 4) place.firstElementChild.remove();
};

/** Says it on the page that comes next. */
const toastNext = (text) => memory.set("said", text, sessionStorageOrNone());
{
  const said = memory.get("said", sessionStorageOrNone());
  if (said) { toastNext(null); toast(said); }
}

// Light or dark

const THEMES = ["system", "light", "dark"];
const showTheme = (theme) => {
  const button = find("#theme");
  if (!button) return;
  find("[data-is=theme]", button).textContent = theme;
};
const themeNow = () => document.documentElement.dataset.theme ?? "system";
on("click", "#theme", () => {
  const theme = THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length];
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  memory.set("theme", theme === "system" ? null : theme);
  showTheme(theme);
  document.dispatchEvent(new CustomEvent("disbatch:theme"));
});
showTheme(themeNow());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("disbatch:theme")));
