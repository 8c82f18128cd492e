// Searches for tasks, and what is done to many of them at once: after a look at how many they are, and with a bar that
// tells how far it is.

const { complain, memory, place, post, request, stream, tellTimes, toast } = window.disbatch;

// An address has only what is asked for.
const USUAL_LIMIT = "100";
document.querySelector("form.tasks-search")?.addEventListener("formdata", ({ formData, target }) => {
  for (const name of new Set(formData.keys())) {
    const values = formData.getAll(name).map((value) => value.trim()).filter(Boolean);
    formData.delete(name);
    if (name === ".limit" && values[0] === USUAL_LIMIT) continue;
    if (name === ".columns") {
      const columns = values.join(",");
      memory.set("columns", columns === target.querySelector("[data-usual]")?.dataset.usual ? null : columns);
      if (columns !== target.querySelector("[data-usual]")?.dataset.usual) formData.append(name, columns);
      continue;
    }
    values.forEach((value) => formData.append(name, value));
  }
});

// Columns that somebody has chosen are those of all searches that name none.
{
  const here = new URL(location.href);
  const columns = document.querySelector("form.tasks-search") && memory.get("columns");
  if (columns && !here.searchParams.has(".columns")) {
    here.searchParams.set(".columns", columns);
    location.replace(here);
  }
}

const VERBS = { cancel: "Cancel", retry: "Retry", archive: "Archive", delete: "Delete" };
const PASSIVE = { cancel: "cancelled", retry: "retried", archive: "archived", delete: "deleted" };
const counted = (count) => (count === null ? "these tasks" : `${count.toLocaleString("en")} task${count === 1 ? "" : "s"}`);

const MOST_FOLLOWED = 3;
const followed = new Map(); // What tells of the jobs whose panels are shown, by the panels' ids.
const stopFollowing = (id) => { followed.get(id)?.end(); followed.delete(id); };

/** Shows how far a job is, until it is over; on its own page where this one has no place for that. */
const follow = (id, action) => {
  const here = document.getElementById("job-here");
  if (!here) return location.assign(`/bulk/${id}`);
  const panel = document.createElement("section");
  panel.id = `job-${id}`;
  here.prepend(panel);
  while (here.children.length > MOST_FOLLOWED) {
    const { lastElementChild: oldest } = here;
    stopFollowing(oldest.id);
    oldest.remove();
  }
  const telling = stream(`/ui/bulk/${id}`, {
    message(html) {
      place(html);
      const { state, done } = document.getElementById(panel.id)?.dataset ?? {};
      if (!state || state === "running") return;
      stopFollowing(panel.id);
      const good = state === "done";
      toast(`${counted(Number(done))} ${PASSIVE[action]}${good ? "." : `, then the job was ${state}.`}`, { tone: good ? "good" : "bad" });
    },
  });
  followed.set(panel.id, telling);
};

/**
 * Asks, also for a reason where none is given, which is put into `fields`. What cannot be brought back is done by nobody who only
 * presses Enter: "No" has the focus, and of several tasks their number has to be typed. Resolves to whether the answer was yes.
 */
const agreed = (question, fields, { yes, danger, word }) => {
  const dialog = document.getElementById("why");
  const part = (name) => dialog.querySelector(`[data-is=${name}]`);
  const typed = part("typed").querySelector("input");
  part("question").textContent = question;
  part("yes").textContent = yes;
  part("yes").className = danger ? "danger" : "primary";
  part("because").hidden = Boolean(fields.get("reason"));
  part("reason").value = "";
  part("typed").hidden = !word;
  part("word").textContent = word;
  typed.value = "";
  const check = () => { part("yes").disabled = Boolean(word) && typed.value.replace(/[\s,.]/g, "").toLowerCase() !== word.replaceAll(",", ""); };
  typed.oninput = check;
  check();
  dialog.returnValue = "";
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const agrees = dialog.returnValue === "yes";
      if (agrees && part("reason").value.trim()) fields.set("reason", part("reason").value.trim());
      resolve(agrees);
    }, { once: true });
    dialog.showModal();
    (danger ? part("no") : part("reason")).focus();
  });
};

/** Which tasks a form is for, in words. */
const scopeOf = (form) => {
  if (form.dataset.scope) return form.dataset.scope;
  const statuses = [...form.querySelectorAll("[name=status]:checked")].map((box) => box.labels[0].textContent.trim());
  const fields = [...form.querySelectorAll("select[name=queue], input[name]:not([type=hidden], [type=checkbox], [name=reason])")];
  const said = fields.filter((field) => field.value).map((field) => {
    const value = field.selectedOptions?.[0].text ?? field.value;
    return field.name === "queue" ? value : `${field.labels[0]?.textContent.trim()}: ${value}`;
  });
  return [...(statuses.length ? [statuses.join(" or ")] : []), ...said].join(", ");
};

const act = async (form, fields) => {
  const action = fields.get("action");
  fields.set(".preview", "1");
  const { count } = await post("/bulk", fields);
  if (count === 0) return toast(`None of these tasks can be ${PASSIVE[action]}.`, { tone: "info" });
  const archived = fields.get("archive") === "0" ? " Archived tasks are left alone." : " Archived ones among them are deleted, too.";
  const warning = action === "delete" ? `${archived} What is deleted cannot be brought back, nor its output.` : "";
  const unknown = count === null ? " There are so many that nobody has counted them." : "";
  const scope = scopeOf(form);
  const question = `${VERBS[action]} ${counted(count)}${scope && `: ${scope}`}?${warning}${unknown}`;
  const word = action !== "delete" || count === 1 ? "" : count?.toLocaleString("en") ?? "delete";
  const options = { yes: `${VERBS[action]} ${count === 1 ? "it" : "them"}`, danger: action === "cancel" || action === "delete", word };
  if (!(await agreed(question, fields, options))) return;
  fields.delete(".preview");
  const { id } = await post("/bulk", fields);
  for (const box of document.querySelectorAll("[data-select]:checked")) box.checked = false;
  document.dispatchEvent(new CustomEvent("disbatch:changed"));
  follow(id, action);
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-bulk]")) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return;
  form.setAttribute("aria-busy", "true");
  form.querySelectorAll(".complaint").forEach((old) => old.remove());
  try {
    await act(form, new URLSearchParams(new FormData(form, event.submitter)));
  } catch (error) {
    complain(form, error.message);
  } finally {
    form.removeAttribute("aria-busy");
  }
});

// Only what can be done to one of the selected tasks is offered.
const offer = () => {
  const selected = [...document.querySelectorAll("[data-select]:checked")].map((box) => box.dataset.can.split(" "));
  for (const button of document.querySelectorAll("button[data-if-selected]")) button.hidden = !selected.some((can) => can.includes(button.value));
};
document.addEventListener("change", ({ target }) => { if (target.matches?.("[data-select], [data-select-all]")) offer(); });
document.addEventListener("disbatch:changed", offer);
offer();

// With Shift all rows up to the one that was ticked last get the same.
let last = null;
document.addEventListener("click", (event) => {
  const box = event.target.closest?.("[data-select]");
  if (!box) return;
  const boxes = [...document.querySelectorAll("[data-select]")];
  const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((one, other) => one - other);
  last = box;
  if (!event.shiftKey || from < 0) return;
  for (const between of boxes.slice(from, to + 1)) between.checked = box.checked;
  box.dispatchEvent(new Event("change", { bubbles: true }));
});
document.addEventListener("click", ({ target }) => { if (target.closest?.("[data-pick-all]")) document.querySelector("[data-select-all]:not(:checked)")?.click(); });

// A search in params goes on by itself while somebody looks: the rows of the pages that follow are put below those that are there.
const MOST_ROWS = 1000;
const visible = () => new Promise((resolve) => {
  const look = () => { if (document.hidden) return; document.removeEventListener("visibilitychange", look); resolve(); };
  document.addEventListener("visibilitychange", look);
  look();
});
const lookOn = async (looked) => {
  const part = (selector) => looked.querySelector(selector);
  const stop = part("[data-is=stop]");
  let going = true;
  let at = Number(looked.dataset.at);
  let found = Number(looked.dataset.found);
  const tell = (over) => {
    const among = looked.dataset.all && looked.dataset.all !== at.toLocaleString("en") ? ` of ${looked.dataset.all}` : "";
    part("strong").textContent = `${found.toLocaleString("en")} found`;
    part("strong").nextSibling.data = over ? ` in all ${at.toLocaleString("en")} tasks.` : ` in the newest ${at.toLocaleString("en")}${among} tasks.`;
  };
  stop.addEventListener("click", () => { going = false; });
  stop.hidden = false;
  part("[rel=next]").hidden = true;
  looked.setAttribute("aria-busy", "true");
  while (going && found < MOST_ROWS) {
    await visible();
    const answer = await request(part("[rel=next]").href, { headers: { Accept: "text/html" } }).catch(() => null);
    const page = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    const more = page?.getElementById("looked");
    if (!more) break;
    const rows = document.getElementById("rows");
    const body = rows.querySelector("[data-rows]");
    const fresh = page.querySelectorAll("#rows [data-rows] > *");
    if (body) body.append(...fresh);
    else if (fresh.length) rows.replaceChildren(...page.getElementById("rows").children);
    if (fresh.length) { tellTimes(rows); document.dispatchEvent(new CustomEvent("disbatch:changed")); }
    at += Number(more.dataset.at);
    found += Number(more.dataset.found);
    const next = more.querySelector("[rel=next]");
    tell(!next);
    if (!next) { part("[rel=next]").remove(); break; }
    part("[rel=next]").href = next.href;
  }
  looked.removeAttribute("aria-busy");
  stop.hidden = true;
  if (part("[rel=next]")) part("[rel=next]").hidden = false;
};
{
  const looked = document.querySelector("#looked:has([rel=next])");
  if (looked) lookOn(looked);
}
