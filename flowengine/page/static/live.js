// Keeps a view current: on each event of its execution, or every few seconds for a list, the server
// renders the view anew. The page works without it.
import { listen } from "./events.js";

const POLL = 3000;
const PLAY = 700; // between two events of the history
const live = document.getElementById("live");
const lost = document.getElementById("connection");
const before = new WeakMap(); // part of the page → its content, as the server sent it last
const tags = new Map(); // address → the tag of its content that was fetched last
let drawn = performance.now(); // when the server drew the bars that are shown
const scrubber = document.querySelector("[data-scrub]");
const UNITS = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

if (live) before.set(live, content(live));
if (live && "execution" in live.dataset) follow(live.dataset.execution);
if (live && "execution" in live.dataset) setInterval(grow, 1000);
if (live && "poll" in live.dataset) setInterval(poll, POLL);
else if (live) setTimeout(poll, POLL + 1000); // no event tells that no worker is there
if (scrubber) scrub();
tellTimes();
setInterval(tellTimes, 30_000);
document.addEventListener("replaced", tellTimes);

function follow(shown) {
  let waiting = false;
  let running = null; // one refresh at a time: that of a long execution can take seconds
  listen((execution) => {
    if (waiting || (execution !== null && execution !== shown)) return;
    waiting = true;
    setTimeout(async () => {
      await running;
      waiting = false;
      running = refreshed();
    }, 200);
  }, (isLost) => { lost.hidden = !isLost; });
}

async function poll() {
  if (!document.hidden) await refreshed();
}

async function refreshed() {
  try {
    await refresh();
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
}

// Returns null if it is the same as before.
async function fetched(address) {
  const headers = { accept: "text/html" };
  if (tags.has(address)) headers["if-none-match"] = tags.get(address);
  const answer = await fetch(address, { headers });
  if (!answer.ok || answer.redirected) return null;
  if (answer.headers.has("etag")) tags.set(address, answer.headers.get("etag"));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function refresh() {
  const page = await fetched(live.dataset.address ?? location.href);
  for (const id of page ? ["live", "left"] : []) {
    const part = document.getElementById(id);
    const next = page.getElementById(id);
    if (next && !part.contains(scrubber)) replace(part, next); // which moves the history itself
  }
}

function replace(old, next) {
  const shown = content(next);
  if ((before.get(old) ?? content(old)) === shown) return;
  before.set(old, shown);
  drawn = performance.now();
  replaceParts(old, next);
  tellTimes();
  old.dispatchEvent(new Event("refreshed"));
}

function replaceParts(old, next) {
  const open = new Map();
  for (const fold of old.querySelectorAll("details")) open.set(fold.dataset.fold, fold.open);
  const places = [...old.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const { selectionStart: start, selectionEnd: end } = focused ?? {};
  keep(old, next);
  old.replaceChildren(...next.childNodes);
  for (const fold of old.querySelectorAll("details")) {
    if (open.has(fold.dataset.fold)) fold.open = open.get(fold.dataset.fold);
  }
  [...old.querySelectorAll(".scroll")].forEach((box, number) => {
    if (places[number]) [box.scrollLeft, box.scrollTop] = places[number];
  });
  if (focused) {
    const same = old.contains(focused) ? focused : [...old.querySelectorAll(focused.tagName)].find(
      (one) =>
        place(one) === place(focused) &&
        one.textContent === focused.textContent &&
        one.href === focused.href,
    );
    same?.focus({ preventScroll: true });
    if (same && typeof start === "number") same.setSelectionRange(start, end);
  }
}

// What the user has entered stays until it is sent, and so does a form that was shown again, with its
// messages. Both give way only if the new view has no place for them.
function keep(old, next) {
  const places = new Map(fields(next).map((field) => [place(field), field]));
  for (const mine of [...old.querySelectorAll("[data-kept]"), ...fields(old).filter(isChanged)]) {
    if (!old.contains(mine)) continue; // it was kept with its form
    const its = mine.id && "kept" in mine.dataset ? next.querySelector(`#${CSS.escape(mine.id)}`) : places.get(place(mine));
    if (its) its.replaceWith(mine);
    else if (mine.type !== "checkbox") document.getElementById("unsent").hidden = false;
  }
}

// The content, without the ids of forms, which are new each time.
function content(part) {
  return part.innerHTML.replace(/name="command" value="\w*"/g, "");
}

function fields(part) {
  return [...part.querySelectorAll("input:not([type=hidden]), textarea, select")];
}

function isChanged(field) {
  if (field.type === "checkbox") return field.checked !== field.defaultChecked;
  if (!field.options) return field.value !== field.defaultValue;
  const first = [...field.options].findIndex((option) => option.defaultSelected);
  return field.selectedIndex !== Math.max(first, 0);
}

function place(field) {
  return `${field.form?.id || field.form?.getAttribute("action")} ${field.name}`;
}

// Tells times relative to now, and exact ones in the zone of the reader. Without this they are in UTC.
function tellTimes() {
  for (const one of document.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    const seconds = Math.round((at - Date.now()) / 1000);
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? UNITS.at(-1);
    one.title ||= exact.format(at);
    const text = "precise" in one.dataset ? exact.format(at) : relative.format(Math.trunc(seconds / size), unit);
    if (one.textContent !== text) one.textContent = text;
  }
}

// Lets the bars of what runs grow until the next event, on an axis that grows with them.
function grow() {
  const seconds = (performance.now() - drawn) / 1000;
  for (const chart of live.querySelectorAll("[data-rate]")) {
    const more = chart.dataset.rate * seconds;
    chart.setAttribute("viewBox", `0 0 ${1000 + more} 20`);
    for (const bar of chart.querySelectorAll("[data-width]")) {
      bar.setAttribute("width", Number(bar.dataset.width) + more);
    }
  }
}

// Shows the moment of an event while the slider moves. One request at a time, the newest wins.
function scrub() {
  let busy = false;
  let playing = null;
  const play = document.querySelector("[data-play]");
  play.hidden = false;
  play.addEventListener("click", toggle);
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, button, summary") || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) move(step);
    else if (event.key === " ") toggle();
    else return;
    event.preventDefault();
  });

  function move(step) {
    const from = scrubber.value;
    scrubber.value = Number(from) + step;
    if (scrubber.value !== from) scrubber.dispatchEvent(new Event("input"));
    return scrubber.value !== from;
  }

  function toggle() {
    clearInterval(playing);
    if (playing === null && scrubber.value === scrubber.max) scrubber.value = -1;
    playing = playing === null ? setInterval(() => { if (!busy && !move(1)) toggle(); }, PLAY) : null;
    play.textContent = playing === null ? "Play" : "Stop";
  }

  scrubber.addEventListener("input", async () => {
    if (busy) return;
    busy = true;
    let shown;
    try {
      do {
        shown = scrubber.value;
        const address = `?event=${shown}`;
        const fresh = await fetched(address);
        if (!fresh) break;
        for (const id of ["moment", "places"]) {
          replace(document.getElementById(id), fresh.getElementById(id));
        }
        const label = fresh.querySelector(`label[for="${scrubber.id}"]`);
        scrubber.labels[0].textContent = label.textContent;
        history.replaceState(null, "", address);
        lost.hidden = true;
      } while (shown !== scrubber.value);
    } catch {
      lost.hidden = false;
    } finally {
      busy = false;
    }
  });
}
