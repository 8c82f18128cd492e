// Searches for tasks, and what is done to many of them at once: after a look at how many they are, and with a bar that
// tells how far it is.

const { ask, complain, place, post, stream, toast } = window.disbatch;

// An address has only what is asked for.
const USUAL_LIMIT = "100";
document.querySelector("form.tasks-search")?.addEventListener("formdata", ({ formData, target }) => {
  for (const name of new Set(formData.keys())) {
    const values = formData.getAll(name).map((value) => value.trim()).filter(Boolean);
    formData.delete(name);
    if (name === ".limit" && values[0] === USUAL_LIMIT) continue;
    if (name === ".columns") {
      const columns = values.join(",");
      if (columns !== target.querySelector("[data-usual]")?.dataset.usual) formData.append(name, columns);
      continue;
    }
    values.forEach((value) => formData.append(name, value));
  }
});

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

/** Asks, also for a reason where the page has a field for that. Resolves to whether the answer was yes; the reason is put into `fields`. */
const agreed = (question, fields, options) => {
  const dialog = document.getElementById("why");
  if (!dialog || fields.get("reason")) return ask(question, options);
  const part = (name) => dialog.querySelector(`[data-is=${name}]`);
  part("question").textContent = question;
  part("yes").textContent = options.yes;
  part("yes").className = options.danger ? "danger" : "primary";
  part("reason").value = "";
  dialog.returnValue = "";
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const yes = dialog.returnValue === "yes";
      if (yes && part("reason").value.trim()) fields.set("reason", part("reason").value.trim());
      resolve(yes);
    }, { once: true });
    dialog.showModal();
  });
};

const act = async (form, fields) => {
  const action = fields.get("action");
  fields.set(".preview", "1");
  const { count } = await post("/bulk", fields);
  if (count === 0) return toast(`None of these tasks can be ${PASSIVE[action]}.`, { tone: "info" });
  const archived = fields.get("archive") === "0" ? " Archived tasks are left alone." : " Archived ones among them are deleted, too.";
  const warning = action === "delete" ? `${archived} What is deleted cannot be brought back, nor its output.` : "";
  const unknown = count === null ? " There are so many that nobody has counted them." : "";
  const yes = `${VERBS[action]} ${count === 1 ? "it" : "them"}`;
  if (!(await agreed(`${VERBS[action]} ${counted(count)}?${warning}${unknown}`, fields, { yes, danger: action === "cancel" || action === "delete" }))) return;
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
