// Who the page is for: what changes something says that a page of this session asks for it. When the session is over, one logs
// in where one is, and nothing that was typed is lost. Where nobody is asked who they are, there is nothing of all that.

const FORM_TOKEN_FIELD = ".form_token"; // The first one of every form.
const FORM_TOKEN_HEADER = "X-Disbatch-Form-Token"; // Where scripts have the same.
const ENDED = "Not sent: your session has ended.";

const sessionOf = (page) => ({
  token: find("meta[name=form-token]", page)?.content ?? "",
  name: find(".tools .account > :last-child", page)?.textContent ?? "",
});
let { token: formToken, name: reader } = sessionOf(document);

/** Whether an answer says that the session is over. Who asks for a page is led away. */
const isOver = ({ status, redirected, url }) => status === 401 || (redirected && new URL(url).pathname === "/login");

let isEnded = false;
/** The session is over: asks to log in. Whoever would rather read on is asked again at the next thing that they do. */
const endSession = (isAsked = true) => {
  if (isEnded && !isAsked) return;
  isEnded = true;
  reviewStreams();
  showConnection();
  const dialog = find("#session") ?? makeLogin();
  if (!dialog.open) dialog.showModal();
};
const makeLogin = () => {
  const field = (label, attributes) => make("label", {}, label, make("input", { required: "", ...attributes }));
  const name = field("Name", { name: "name", maxlength: "64", autocomplete: "username", autocapitalize: "none", spellcheck: "false" });
  const password = field("Password", { type: "password", name: "password", maxlength: "1024", autocomplete: "current-password" });
  find("input", name).value = reader;
  find("input", reader ? password : name).autofocus = true;
  const form = make("form", {},
    make("h2", { id: "session-title" }, "Your session has ended"),
    make("p", {}, "What you typed is still here. Log in to go on."), name, password,
    make("div", { class: "actions" }, make("button", { type: "button", "data-close": "" }, "Keep reading"), make("button", { class: "primary" }, "Log in")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearComplaint(form);
    try {
      const body = JSON.stringify(Object.fromEntries(new FormData(form)));
      const headers = { Accept: "application/json", "Content-Type": "application/json" };
      const answer = await fetch("/login", { method: "POST", headers, body });
      const said = await answer.text();
      if (!answer.ok) { complain(form, failure(answer.status, said, answer.headers.get("content-type") ?? "")); return; }
      find("input", password).value = "";
      await takeSession();
    } catch (error) { complain(form, error instanceof TypeError ? failure(0) : error.message); }
  });
  const dialog = make("dialog", { id: "session", class: "login", "aria-labelledby": "session-title" }, form);
  document.body.append(dialog);
  return dialog;
};

/** The form token itself: each page has it under a mask of its own. */
const unmasked = (token) => {
  const bytes = [...atob(token.replaceAll("-", "+").replaceAll("_", "/"))].map((one) => one.charCodeAt(0));
  return bytes.slice(bytes.length / 2).map((byte, index) => byte ^ bytes[index]).join();
};

/** Goes on with the session that the browser has now, which may have begun in another window. Resolves to whether the page can. */
const takeSession = async () => {
  const answer = await fetch("/account", { headers: { Accept: "text/html" } });
  if (isOver(answer)) { endSession(); return false; }
  if (!answer.ok) throw new Error(failure(answer.status, await answer.text(), "html"));
  const { token, name } = sessionOf(new DOMParser().parseFromString(await answer.text(), "text/html"));
  find("#session")?.close();
  if (name !== reader) {
    const question = `You are logged in as ${name}. This page is ${reader ? `${reader}'s` : "nobody's"}: load it again? What was typed on it is lost.`;
    if (await ask(question, { yes: "Load it again", danger: false })) location.reload();
    return false;
  }
  formToken = token;
  if (!isEnded) return true;
  isEnded = false;
  for (const words of findAll(".complaint")) if (words.textContent === ENDED) words.remove();
  toast("You are logged in again. What you typed is still here.");
  reviewStreams();
  showConnection();
  return true;
};

/** As `fetch`, for everything that pages ask for. */
const request = async (address, init = {}) => {
  const headers = { ...init.headers };
  const isRead = (init.method ?? "GET") === "GET";
  if (formToken && !isRead) headers[FORM_TOKEN_HEADER] = formToken;
  const answer = await fetch(address, { ...init, headers });
  if (isOver(answer)) endSession(!isRead);
  return answer;
};

/** Finds out whether the session is over: a stream of events that ends does not tell why. */
const checkSession = async () => {
  try {
    const answer = await request("/account", { headers: { Accept: "application/json" } });
    await answer.body?.cancel();
  } catch { /* The server cannot be reached, which the page says by itself. */ }
};

// A form that the browser sends leads to another page, and what was typed is gone if that is one to log in, or that nobody
// answers. So it is sent when the session is known to go on, and after all others had a look at it.
const beingChecked = new WeakSet();
const isRight = new WeakSet();
window.addEventListener("submit", async (event) => {
  const { target: form, submitter } = event;
  if (event.defaultPrevented || !formToken || isRight.delete(form)) return;
  if (form.getAttribute("method") !== "post" || form.getAttribute("action") === "/logout") return;
  event.preventDefault();
  if (beingChecked.has(form)) return; // Twice is once.
  beingChecked.add(form);
  clearComplaint(form);
  try {
    if (await takeSession()) {
      isRight.add(form);
      form.requestSubmit(submitter);
    } else complain(form, ENDED);
  } catch (error) { complain(form, error instanceof TypeError ? failure(0) : error.message); }
  beingChecked.delete(form);
});

// Parts that change by themselves are made for everybody, so their forms do not have it.
on("submit", "form[method=post]", (_, form) => {
  if (!formToken) return;
  const field = find(`:scope > input[name="${FORM_TOKEN_FIELD}"]`, form) ?? make("input", { type: "hidden", name: FORM_TOKEN_FIELD });
  field.value = formToken;
  form.prepend(field);
}, true);

// Nor do these parts know who may use what is in them. The server refuses it anyway.
const ROLES = ["viewer", "submitter", "operator", "admin"];
const { role, everywhere, grants } = document.body.dataset;
const granted = JSON.parse(grants ?? "{}");
/** Whether the reader has at least the role `wanted`: on the queue that this row is about, or else that the page is about. */
const has = (wanted, row) => {
  const own = row ? [everywhere, granted[row.dataset.inQueue], granted[`tenant ${row.dataset.inTenant}`]] : [role];
  return own.some((one) => ROLES.indexOf(one) >= ROLES.indexOf(wanted));
};
const limitControls = () => {
  for (const attribute of ["data-needs", "data-needs-everywhere"]) {
    for (const control of findAll(`[${attribute}]`)) {
      const wanted = control.getAttribute(attribute);
      const row = control.closest("[data-in-queue]");
      let may = attribute === "data-needs" ? has(wanted, row) : ROLES.indexOf(everywhere) >= ROLES.indexOf(wanted);
      // What somebody has made is theirs.
      may ||= control.dataset.owner === reader && has("submitter", row);
      if (may) continue;
      if ("disabled" in control) control.disabled = true; else control.hidden = true;
    }
  }
};
if (role !== undefined) {
  document.addEventListener("disbatch:changed", limitControls);
  limitControls();
}

// <button data-copy="ID">: copies what is in the field, or selects it where the browser does not allow that.
on("click", "[data-copy]", async (_, button) => {
  const field = document.getElementById(button.dataset.copy);
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
    toast("Copied.");
  } catch { toast("It is selected: copy it with the keyboard.", { tone: "info" }); }
});
