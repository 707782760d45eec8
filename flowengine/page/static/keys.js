// Keys that act without a mouse, and ids that are copied by a click. The page works without them.
const WAIT = 1000; // ms in which the second key of `g i` follows
const PLACES = { i: "/approvals", e: "/executions", f: "/flows" };
const CLOSED = "details:not([open])";
const FIELD = `#live form :is(${CLOSED} > summary, :is(input:not([type=hidden]), select, textarea):not(${CLOSED} *))`;
const list = document.getElementById("keys");
const search = document.querySelector("input[type=search]");
const on = document.getElementById("keys-on");
let went = -WAIT; // when `g` was pressed

if (location.hash === "#search") search?.focus();
if (list) {
  on.checked = localStorage.getItem("keys") !== "off";
  on.addEventListener("change", () => localStorage.setItem("keys", on.checked ? "on" : "off"));
  const show = document.querySelector("[data-keys]");
  show.hidden = false;
  show.addEventListener("click", () => list.showModal());
  document.addEventListener("keydown", press);
}
document.addEventListener("click", (event) => {
  const id = event.target.closest("code[title]");
  if (id && !id.closest("a, summary") && getSelection().isCollapsed) copy(id);
});

function press(event) {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
  if (event.key === "Escape" && !event.isComposing && !typing?.matches("dialog")) typing?.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key !== "?" && !on.checked) return;
  const acts = {
    j: () => move(1),
    k: () => move(-1),
    x: () => row(event.target)?.querySelector("[type=checkbox]")?.click(),
    a: () => (document.querySelector(".dock .approve") ?? document.querySelector(".dock .choices button"))?.focus(),
    r: () => document.querySelector(".dock .reject")?.focus(),
    f: () => document.querySelector(FIELD)?.focus(),
    g: () => { went = event.timeStamp; },
    "/": () => (search ? search.focus() : location.assign("/executions#search")),
    "?": () => list.showModal(),
  };
  const place = event.timeStamp - went < WAIT && PLACES[event.key];
  const act = place ? () => location.assign(place) : acts[event.key.toLowerCase()];
  if (!act) return;
  went = -WAIT;
  event.preventDefault();
  act();
}

// Focuses the link of the next row of a list, or of the first one.
function move(step) {
  const links = [...document.querySelectorAll(".items .t, .list .what")];
  const here = links.indexOf(row(document.activeElement)?.querySelector(".t, .what"));
  const open = links.findIndex((link) => link.ariaCurrent);
  const next = (here < 0 ? open : here) + step;
  links[Math.min(Math.max(next, 0), links.length - 1)]?.focus();
}

function row(element) {
  return element.closest(".item, .list tr");
}

async function copy(id) {
  await navigator.clipboard.writeText(id.title);
  const shown = id.textContent;
  id.textContent = "copied";
  setTimeout(() => { id.textContent = shown; }, 1200);
}
