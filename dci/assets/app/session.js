// Who the page is for: what changes something says that a page of this session asks for it, and when the session is over, the
// page leads to where one logs in. Where nobody is asked who they are, there is nothing of all that.

const FORM_TOKEN_FIELD = ".form_token"; // The first one of every form.
const FORM_TOKEN_HEADER = "X-Disbatch-Form-Token"; // Where scripts have the same.
const formToken = find("meta[name=form-token]")?.content ?? "";

let isLeaving = false;
/** Goes to where one logs in, and from there back here. */
const logIn = () => {
  if (isLeaving) return;
  isLeaving = true;
  toast("You are not logged in any more.", { tone: "bad" });
  const here = `${location.pathname}${location.search}${location.hash}`;
  location.assign(`/login?then=${encodeURIComponent(here)}`);
};

/** Whether an answer says that the session is over. Who asks for a page is led away. */
const isOver = ({ status, redirected, url }) => status === 401 || (redirected && new URL(url).pathname === "/login");

/** As `fetch`, for everything that pages ask for. */
const request = async (address, init = {}) => {
  const headers = { ...init.headers };
  if (formToken && init.method && init.method !== "GET") headers[FORM_TOKEN_HEADER] = formToken;
  const answer = await fetch(address, { ...init, headers });
  if (isOver(answer)) logIn();
  return answer;
};

/** Finds out whether the session is over: a stream of events that ends does not tell why. */
const checkSession = async () => {
  try {
    const answer = await request("/account", { headers: { Accept: "application/json" } });
    await answer.body?.cancel();
  } catch { /* The server cannot be reached, which the page says by itself. */ }
};

// Parts that change by themselves are made for everybody, so their forms do not have it.
on("submit", "form[method=post]", (_, form) => {
  if (!formToken) return;
  const field = find(`:scope > input[name="${FORM_TOKEN_FIELD}"]`, form) ?? make("input", { type: "hidden", name: FORM_TOKEN_FIELD });
  field.value = formToken;
  form.prepend(field);
}, true);

// Nor do these parts know who may use what is in them. The server refuses it anyway.
const ROLES = ["viewer", "submitter", "operator", "admin"];
const lacks = (own, wanted) => ROLES.indexOf(own) < ROLES.indexOf(wanted);
const limitControls = () => {
  const { role, everywhere } = document.body.dataset;
  for (const [attribute, own] of [["data-needs", role], ["data-needs-everywhere", everywhere]]) {
    for (const control of findAll(`[${attribute}]`)) {
      if (!lacks(own, control.getAttribute(attribute))) continue;
      if ("disabled" in control) control.disabled = true; else control.hidden = true;
    }
  }
};
if (document.body.dataset.role !== undefined) {
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
