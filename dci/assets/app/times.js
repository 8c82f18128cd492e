// Times: <time datetime> is told as "3 min ago", and in full when it is pointed at; one with `data-exact` as clocks show it ("short": without what goes without saying). All are in the reader's zone, whose
// name is put into each `data-zone`, save those of forms: these name the zone in which the server has filled their fields.

const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const relative = (seconds) => {
  const distance = Math.abs(seconds);
  if (distance < 1) return "now";
  const [unit, length] = UNITS.find(([, size]) => distance >= size) ?? UNITS.at(-1);
  const count = Math.floor(distance / length);
  // What is shortened has no plural.
  const words = `${count} ${unit}${length >= 86400 && count !== 1 ? "s" : ""}`;
  return seconds > 0 ? `${words} ago` : `in ${words}`;
};

// Swedes write 2026-11-20 09:24:27.
const clockIn = (timeZone) => new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "medium" });
const UTC = clockIn("UTC");
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

// The cookie tells the server, too. Behind "mine:" is whatever zone this browser is in.
const ZONE_COOKIE = /(?:^|; )disbatch_zone=([^;]*)/;
const keepZone = (choice) => { document.cookie = `disbatch_zone=${choice}; Path=/; Max-Age=31536000; SameSite=Lax`; };
const chosenZone = () => {
  try {
    const kept = decodeURIComponent(ZONE_COOKIE.exec(document.cookie)?.[1] ?? "mine:");
    const isOwn = kept.startsWith("mine:");
    const name = isOwn ? OWN_ZONE : kept;
    if (isOwn && kept !== `mine:${OWN_ZONE}`) keepZone(`mine:${OWN_ZONE}`);
    return { name, isOwn, clock: clockIn(name) };
  } catch { return { name: "UTC", isOwn: false, clock: UTC }; }
};
const cookiesBefore = document.cookie;
let zone = chosenZone();
// The server hears of the zone just now: it has filled fields in another one than that in which it will read them.
if (document.cookie !== cookiesBefore && !find("[data-once]") && findAll("form [data-zone]").some((mark) => mark.textContent !== zone.name)) location.reload();

const inFull = (at) => (zone.name === "UTC" ? "" : `${zone.clock.format(at)} ${zone.name}\n`) + `${UTC.format(at)} UTC`;

/** As clocks show it; where it is to be short, the day only if that is another one than today, and no seconds. */
const exactly = (at, isShort) => {
  const text = zone.clock.format(at);
  if (!isShort) return text;
  return text.slice(text.slice(0, 10) === zone.clock.format(Date.now()).slice(0, 10) ? 11 : 0, 16);
};
/** Renews all times below `root`; in full if they are in another zone now. */
const tellTimes = (root = document, isOther = false) => {
  for (const time of findAll("time[datetime]", root)) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const isExact = time.hasAttribute("data-exact");
    const isNew = !time.title || isOther;
    if (isNew) time.title = inFull(at);
    // Only what is told by how long ago it is goes on by itself.
    if (isExact && !isNew) continue;
    const text = isExact ? exactly(at, time.dataset.exact === "short") : relative((Date.now() - at) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
  for (const mark of findAll("[data-zone]", root)) if ((isOther || !mark.closest("form")) && mark.textContent !== zone.name) mark.textContent = zone.name;
};
tellTimes();
setInterval(() => { if (!document.hidden) tellTimes(); }, 5000);

// What is offered is known here alone.
const zones = make("select", { "aria-label": "Time zone", autocomplete: "off" });
find("#zone")?.append(zones);
const showZones = () => {
  const options = [["mine", `My time: ${OWN_ZONE}`], ["UTC", "UTC"], [zone.name, zone.name], ["", "Another zone…"]];
  // One that was named has a place of its own.
  if (zone.isOwn || zone.name === "UTC") options.splice(2, 1);
  zones.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  zones.value = zone.isOwn ? "mine" : zone.name;
};
showZones();
/** Has the page made in the other zone, fields of forms with it. What somebody has typed or chosen is not to be lost, nor what is shown once, as
    the answer of what must not be done again: then the fields are left alone. */
const changeZone = () => {
  const { name } = zone;
  zone = chosenZone();
  showZones();
  if (zone.name === name) return;
  if (!find("form[data-dirty], [data-once], [data-select]:checked")) { location.reload(); return; }
  tellTimes(document, true);
  document.dispatchEvent(new CustomEvent("disbatch:zone"));
  toast(`Times in forms are those of ${zone.name} now. What is in their fields has stayed as it was: check it.`, { tone: "info" });
};
zones.addEventListener("change", () => {
  const { value } = zones;
  if (value) keepZone(value === "mine" ? `mine:${OWN_ZONE}` : value);
  else location.assign(`/zone?then=${encodeURIComponent(`${location.pathname}${location.search}`)}`);
  changeZone();
});
// It may have been changed in another tab, or on a page before this one.
document.addEventListener("visibilitychange", () => { if (chosenZone().name !== zone.name) changeZone(); });
window.addEventListener("pageshow", ({ persisted }) => { if (persisted) changeZone(); });
