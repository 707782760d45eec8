// Keeps a view current: on each event of an execution's journal, or every few seconds for a list,
// the server renders the view anew. The page works without it.
const POLL = 3000;
const live = document.getElementById("live");
const lost = document.getElementById("connection");
const scrubber = document.querySelector("[data-scrub]");

if (live && "events" in live.dataset) follow(live.dataset.events);
if (live && "poll" in live.dataset) setInterval(poll, POLL);
if (scrubber) scrub();

function follow(address) {
  const source = new EventSource(address);
  let waiting = false;
  source.onopen = () => { lost.hidden = true; };
  source.onerror = () => { lost.hidden = false; };
  source.addEventListener("entry", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(async () => { waiting = false; await refresh(); }, 200);
  });
  source.addEventListener("end", async () => {
    source.close();
    lost.hidden = true;
    await refresh();
  });
}

async function poll() {
  if (document.hidden) return;
  try {
    await refresh();
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
}

async function fetched(address) {
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function refresh() {
  const next = (await fetched(location.href))?.getElementById("live");
  if (next) replace(live, next);
}

function replace(old, next) {
  if (old.dataset.shown === undefined) old.dataset.shown = old.innerHTML;
  if (old.dataset.shown === next.innerHTML) return;
  const open = new Map();
  for (const fold of old.querySelectorAll("details")) open.set(fold.dataset.fold, fold.open);
  const places = [...old.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const shown = next.innerHTML;
  old.replaceChildren(...next.childNodes);
  old.dataset.shown = shown;
  for (const fold of old.querySelectorAll("details")) {
    if (open.has(fold.dataset.fold)) fold.open = open.get(fold.dataset.fold);
  }
  [...old.querySelectorAll(".scroll")].forEach((box, number) => {
    if (places[number]) [box.scrollLeft, box.scrollTop] = places[number];
  });
  if (focused) {
    const same = [...old.querySelectorAll(focused.tagName)].find(
      (one) => one.textContent === focused.textContent && one.href === focused.href,
    );
    same?.focus({ preventScroll: true });
  }
}

// Shows the moment of an event while the slider moves. One request at a time, the newest wins.
function scrub() {
  let busy = false;
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
