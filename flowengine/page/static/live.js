// Keeps the view of an execution current: each event of its journal has the view rendered anew by
// the server. The page works without it.
const live = document.getElementById("live");
const lost = document.getElementById("connection");

if (live && !("ended" in live.dataset)) follow(live.dataset.events);

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

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = fresh.getElementById("live");
  if (!next) return;
  const open = new Map();
  for (const fold of live.querySelectorAll("details")) open.set(fold.dataset.fold, fold.open);
  live.replaceChildren(...next.childNodes);
  for (const fold of live.querySelectorAll("details")) {
    if (open.has(fold.dataset.fold)) fold.open = open.get(fold.dataset.fold);
  }
}
