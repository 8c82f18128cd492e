// Times: <time datetime> within the page is told as "3 min ago", and in full when it is pointed at. Those within `data-plain` stay.

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

/** Renews all times below `root`. Those with `data-plain` stay as they are. */
const tellTimes = (root = document) => {
  for (const time of findAll("time[datetime]:not([data-plain], [data-plain] *)", root)) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    if (!time.title) {
      const utc = time.textContent.trim();
      time.title = `${utc}\n${new Date(at).toLocaleString(undefined, { timeZoneName: "short" })}`;
    }
    const text = relative((Date.now() - at) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
};
tellTimes();
setInterval(() => { if (!document.hidden) tellTimes(); }, 5000);
