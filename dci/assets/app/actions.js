// Actions: forms with `hx-post` act without leaving the page, say what they did, and show what went wrong where it did.

const hostOf = (element) => element.closest("form, [data-errors]") ?? element;
const COMPLAINT = "complaint-"; // How the ids of complaints begin.
let complaints = 0;

/** Ties words to the field that they are about. */
const blame = (field, words) => {
  words.id ||= `${COMPLAINT}${++complaints}`;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", `${field.getAttribute("aria-describedby") ?? ""} ${words.id}`.trim());
};
/** Takes back what was said to be wrong. */
const clearComplaint = (host) => {
  findAll(".complaint", host).forEach((old) => old.remove());
  for (const field of findAll("[aria-invalid]", host)) {
    field.removeAttribute("aria-invalid");
    const others = (field.getAttribute("aria-describedby") ?? "").split(/\s+/).filter((id) => id && !id.startsWith(COMPLAINT));
    if (others.length) field.setAttribute("aria-describedby", others.join(" "));
    else field.removeAttribute("aria-describedby");
  }
};

/** The field that the server's words are about, which begin with its name then. Fields that are saved where they stand are at hand. */
const fieldOf = (form, text) => {
  const name = /^[\w.]+/.exec(text)?.[0];
  const field = name && !form.matches("[data-inplace]") ? form.elements?.namedItem(name) : null;
  return isField(field) && field.type !== "hidden" ? field : null;
};
/** Says it at the field, and leads there. */
const complainAt = (form, text) => {
  const field = fieldOf(form, text);
  complain(form, text, field);
  if (!field) return;
  (field.closest("label") ?? field).after(find(".complaint", form));
  field.closest("details")?.setAttribute("open", "");
  field.focus({ preventScroll: true });
  field.scrollIntoView({ block: "center" });
};

/** Says what is wrong where it was asked for, and with which field if it is one. */
const complain = (element, text, field = null) => {
  const host = hostOf(element);
  if (!host.isConnected) return toast(text, { tone: "bad" });
  clearComplaint(host);
  const words = make("p", { class: "message complaint", role: "alert", "data-client": "" }, text);
  if (host.matches("form, [data-errors]")) host.append(words);
  else host.after(words);
  if (field) blame(field, words);
};

/** The words of an answer that is a failure. */
const failure = (status, body, type = "") => {
  if (type.includes("json")) {
    try {
      const { error, param, plugin, status: said } = JSON.parse(body);
      if (typeof error === "string" && error.startsWith("MongoDB::DuplicateKeyError")) return "This name is taken.";
      const about = param ?? plugin;
      if (typeof error === "string") {
        const who = status === 403 && reader ? `You are ${reader}: ` : "";
        return `${who}${error}${about === undefined ? "" : `: ${about}`}`;
      }
      if (typeof said === "string") return said;
    } catch { /* It is told as what it is. */ }
  }
  if (type.includes("html")) {
    const words = find("main .message", new DOMParser().parseFromString(body, "text/html"))?.textContent.trim();
    if (words) return words;
  }
  return { 0: "The server cannot be reached.", 400: "The server does not accept this.", 403: "You may not do this.", 404: "It is not there any more.", 503: "The database cannot be reached." }[status] ?? `The server could not do it (${status}).`;
};
const failureOf = (xhr) => failure(xhr.status, xhr.responseText, xhr.getResponseHeader("content-type") ?? "");

/** `{name}` in `text` becomes what was sent, or else what the answer has, under that name; of an empty field what it shows. */
const filled = (text, form, sent, answer) => text.replace(/\{([\w.]+)\}/g, (whole, name) => {
  const value = sent.get(name) ?? answer?.[name];
  if (value === "") return form.elements?.namedItem(name)?.placeholder ?? "";
  return value === undefined || value === null || typeof value === "object" ? whole : String(value);
});

// Forms with hx-ext="json" send JSON: numbers as numbers, and null for a number that is not given.
const isJson = (form) => form.matches?.("[hx-ext~=json]") ?? false;
const jsonOf = (form, pairs) => JSON.stringify(Object.fromEntries([...pairs].map(([name, value]) => {
  const isNumber = find(`[name="${CSS.escape(name)}"]`, form)?.type === "number";
  return [name, isNumber ? (value === "" ? null : Number(value)) : value];
})));
window.htmx?.defineExtension("json", {
  onEvent(name, { detail }) {
    if (name === "htmx:configRequest") detail.headers["Content-Type"] = "application/json";
    return true;
  },
  encodeParameters(_, parameters, form) {
    const data = parameters instanceof FormData ? parameters : Object.entries(parameters);
    return jsonOf(form, data);
  },
});

/** Sends fields, or text that is JSON, to `address`. Returns the answer, or throws an error whose message is for people. */
const post = async (address, fields, method = "POST") => {
  let answer;
  const init = { method, headers: { Accept: "application/json" } };
  if (typeof fields === "string") Object.assign(init, { body: fields, headers: { ...init.headers, "Content-Type": "application/json" } });
  else if (fields) {
    init.body = new URLSearchParams(fields);
    init.body.delete(FORM_TOKEN_FIELD);
  }
  try { answer = await request(address, init); } catch { throw new Error(failure(0)); }
  if (isOver(answer)) throw new Error(ENDED);
  const body = await answer.text();
  if (!answer.ok) throw new Error(failure(answer.status, body, answer.headers.get("content-type") ?? ""));
  try { return JSON.parse(body); } catch { return {}; }
};

// What fields are set back to, which is what the server has as far as the page knows
const fieldsOf = (form) => findAll("input[name]:not([type=hidden], [type=checkbox], [type=radio]), select[name], textarea[name]", form);
const keptOf = (field) => {
  if (!field.matches("select")) return field.defaultValue;
  return ([...field.options].find((option) => option.defaultSelected) ?? field.options[0])?.value ?? "";
};
const keep = (field, value) => {
  if (!field.matches("select")) { field.defaultValue = value.replaceAll("\r\n", "\n"); return; }
  const { value: now } = field;
  for (const option of field.options) option.defaultSelected = option.value === value;
  if (field.value !== now) field.value = now;
};
const differs = (form) => fieldsOf(form).some((field) => field.value !== keptOf(field) || field.validity.badInput);

/** Fields as a form with `data-was` sends what its page knew of them: who has seen nothing of a field may overwrite it. */
const seenIn = (form, value) => {
  const isUnseen = ({ name }) => (form.disbatchUnseen ?? []).some((other) => name === other || name.startsWith(`${other}.`));
  return jsonOf(form, fieldsOf(form).filter((field) => !isUnseen(field)).map((field) => [field.name, value(field)]));
};

/** What takes an action back: `data-undo` as a query string, or what the fields were before. */
const undoOf = (form) => {
  if (form.dataset.undo === undefined) return null;
  const before = new URLSearchParams(form.dataset.undo || fieldsOf(form).map((field) => [field.name, keptOf(field)]));
  if (form.matches("[data-was]")) before.set(".was", seenIn(form, ({ value }) => value));
  const address = form.getAttribute("hx-post") ?? form.action;
  return async () => {
    try {
      await post(address, isJson(form) ? jsonOf(form, before) : before);
      // What fields were is told as what they are is.
      toast(form.dataset.undo || form.dataset.done === undefined ? "Undone." : `Undone. ${filled(form.dataset.done, form, before)}`);
      for (const field of fieldsOf(form)) {
        const value = before.get(field.name);
        if (value === null) continue;
        const isTouched = field.value !== keptOf(field);
        keep(field, value);
        if (!isTouched) field.value = value;
      }
      if (form.dataset.undo) form.dataset.undo = String(before);
      settled(form, null);
    } catch (error) { toast(`It could not be undone. ${error.message}`, { tone: "bad" }); }
  };
};

/** After an action: on to another page, or this one brought up to date if it does not do that by itself. */
const settled = (form, said, answer = {}) => {
  // The field `.then` is for browsers without script, which have to be led somewhere.
  if (form.dataset.then) {
    if (said) toastNext(said);
    location.assign(filled(form.dataset.then, form, form.disbatchSent ?? new URLSearchParams(), answer));
    return true;
  }
  if (!find("[data-live]")) refresh();
  return false;
};

document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.verb === "get") return;
  // Only a browser without script is led to another page. Scripts get the answer that programs get.
  delete detail.parameters[".then"];
  // In a header it is in no address, as that of a DELETE, and in no JSON.
  delete detail.parameters[FORM_TOKEN_FIELD];
  if (formToken) detail.headers[FORM_TOKEN_HEADER] = formToken;
  detail.headers.Accept = "application/json";
  if (detail.elt.matches("[data-was]")) detail.parameters[".was"] = seenIn(detail.elt, keptOf);
  const button = detail.elt.disbatchButton; // A dialog in between has taken the focus from it.
  if (button?.name && detail.parameters[button.name] === undefined) detail.parameters[button.name] = button.value;
  detail.elt.disbatchSent = new URLSearchParams([...detail.formData].map(([name, value]) => [name, String(value)]));
  // The page may tell of the change before the answer does: then these are about the next one already.
  detail.elt.disbatchUndo = undoOf(detail.elt);
  detail.elt.disbatchDone = detail.elt.dataset.done;
});
document.addEventListener("htmx:beforeRequest", ({ detail: { elt } }) => {
  clearComplaint(hostOf(elt));
  elt.setAttribute("aria-busy", "true");
  // At the element itself: it may be off the page when the answer comes, and then nothing else hears of it.
  for (const [name, hear] of HEARD) elt.addEventListener(name, hear);
});
const ended = ({ detail }) => {
  const { xhr, successful, requestConfig: { elt } } = detail;
  elt.removeAttribute("aria-busy");
  // The request has not quite ended yet.
  if (elt.disbatchAgain) setTimeout(() => save(elt));
  elt.disbatchAgain = false;
  if (!successful || detail.requestConfig.verb === "get") return;
  elt.disbatchButton = null;
  elt.disbatchUnseen = null;
  let answer = {};
  try { answer = JSON.parse(xhr.responseText); } catch { /* It has nothing to tell. */ }
  const said = elt.disbatchDone === undefined ? null : filled(elt.disbatchDone, elt, elt.disbatchSent, answer);
  elt.closest("dialog")?.close();
  if (elt.dataset.undo) elt.dataset.undo = String(elt.disbatchSent);
  if (elt.hasAttribute("data-reset")) elt.reset();
  else {
    for (const field of fieldsOf(elt)) if (elt.disbatchSent.has(field.name)) keep(field, elt.disbatchSent.get(field.name));
    // Something may have been typed since it was sent.
    elt.toggleAttribute("data-dirty", differs(elt));
  }
  elt.dispatchEvent(new CustomEvent("disbatch:done", { bubbles: true, detail: { answer, said } }));
  if (!settled(elt, said, answer) && said) toast(said, { undo: elt.disbatchUndo });
};
const failed = ({ detail: { xhr, requestConfig: { elt } } }) => {
  elt.removeAttribute("aria-busy");
  complainAt(elt, xhr.status === 401 ? ENDED : failureOf(xhr));
  if (xhr.status === 409 && elt.matches("[data-was]")) overtaken(elt, xhr);
  if (xhr.status === 401) endSession();
  // The session may be a new one: who has logged in again in another window only has to try again.
  const before = formToken;
  if (xhr.status !== 403 || !before || isEnded) return;
  takeSession().then((goesOn) => {
    if (goesOn && unmasked(formToken) !== unmasked(before)) complain(elt, "You had logged in again. Now it can be sent: try again.");
  }, () => { /* What is wrong is told already. */ });
};
/** Somebody else has changed fields of `form` meanwhile: says so at each of them. Who saves again has seen that. */
const overtaken = (form, xhr) => {
  let changed = {};
  try { changed = JSON.parse(xhr.responseText).changed ?? {}; } catch { /* It is told at the end of the form. */ }
  form.disbatchUnseen = Object.keys(changed);
  for (const field of fieldsOf(form)) {
    const [whole, part] = field.name.split(".");
    if (!(whole in changed)) continue;
    const now = part === undefined ? changed[whole] : changed[whole]?.[part];
    const text = now === undefined || now === null ? "" : typeof now === "object" ? JSON.stringify(now) : String(now);
    if (text === keptOf(field)) continue;
    const words = make("p", { class: "message complaint", "data-client": "" }, `Somebody else has ${text ? `set this to ${text}` : "cleared this"} meanwhile. Save again to overwrite it.`);
    field.closest("details")?.setAttribute("open", "");
    (field.closest("label") ?? field).after(words);
    blame(field, words);
  }
  find("[aria-invalid]", form)?.focus();
};
const HEARD = [["htmx:afterRequest", ended], ["htmx:responseError", failed], ["htmx:sendError", failed], ["htmx:timeout", failed]];
// Answers for programs are not to be shown as they are.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (!(detail.xhr.getResponseHeader("content-type") ?? "").includes("html")) detail.shouldSwap = false;
});
document.addEventListener("htmx:afterSwap", () => { tellTimes(); document.dispatchEvent(new CustomEvent("disbatch:changed")); });

// What leads to a page that only the browser can ask for: whatever is wrong has been told here, and nothing that was typed is lost.
on("disbatch:done", "form[data-leads]", (_, form) => form.submit());

// What somebody has typed or ticked is not to be lost to an update.
on("input", "form", ({ target }, form) => { if (isField(target) || target.matches("[type=checkbox], [type=radio]")) form.dataset.dirty = ""; });
on("reset", "form", (_, form) => { delete form.dataset.dirty; clearComplaint(form); });

// A field that is saved where it stands: at once with Enter or when it is left, else when nothing has changed for a moment.
const SAVE_AFTER = 700;
const waiting = new WeakMap();
const isBusy = (form) => form.getAttribute("aria-busy") === "true";
const isBeingSent = (form) => fieldsOf(form).every((field) => field.value === form.disbatchSent.get(field.name));
const save = (form, byKey = false) => {
  clearTimeout(waiting.get(form));
  if (form.disbatchAsking) return;
  if (isBusy(form)) { form.disbatchAgain = !isBeingSent(form); return; }
  if (!differs(form)) { delete form.dataset.dirty; clearComplaint(form); return; }
  if (form.checkValidity()) { form.requestSubmit(); return; }
  // A browser's own message takes the focus, which whoever leaves a field must not be given back.
  if (byKey) { form.reportValidity(); return; }
  const wrong = fieldsOf(form).find((field) => !field.validity.valid);
  if (wrong) complain(form, `Not saved. ${wrong.validationMessage}`, wrong);
};
on("change", "form[data-inplace]", (_, form) => { clearTimeout(waiting.get(form)); waiting.set(form, setTimeout(() => save(form), SAVE_AFTER)); });
on("focusout", "form[data-inplace]", (_, form) => { if (form.dataset.dirty !== undefined) save(form); });
on("keydown", "form[data-inplace] input", (event, field) => {
  if (event.key === "Enter") { event.preventDefault(); save(field.form, true); }
  if (event.key === "Escape") { clearTimeout(waiting.get(field.form)); field.form.reset(); }
});
// Twice is once.
on("submit", "form[hx-post], form[hx-delete]", (event, form) => {
  form.disbatchButton = event.submitter;
  if (isBusy(form)) { event.preventDefault(); event.stopImmediatePropagation(); }
}, true);
