// Shows the replies that models are writing below a conversation, each until the server has rendered
// it complete. They are never markup, and no more of each is kept than the page shows of any text.
const MOST_TEXT = 20_000;
const SMALLEST = 100; // what each call counts at least
const MOST_REPLIES = 20;
const AGAIN = 5000;
const KEPT = 10_000; // after the end of a reply, whose turn may also have been withdrawn
const NEAR = 40; // px from the end that count as the end
const LOCK = "flowengine replies";
// What a text could use to look like another one, as in flowengine/sdk/texts/visible_text.py.
const HARMFUL =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb\ufffe\ud800-\udfff\u{e0000}-\u{e007f}]/gu;

const live = document.getElementById("live");
let sent = null; // the message that the server has not rendered yet
const replies = new Map(); // address of a turn → the reply
let turn = null; // since this tab has asked for the stream

let isAtEnd = !new URLSearchParams(location.search).has("from"); // then new messages are scrolled to

claim();
follow();
addEventListener("scroll", () => {
  isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR;
});
live.addEventListener("refreshed", show);
live.addEventListener("keydown", (event) => {
  const form = event.target.form;
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !form?.matches("[data-composer]")) return;
  event.preventDefault();
  form.requestSubmit();
});
live.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-composer]")) return;
  event.preventDefault();
  send(event.target);
});
document.addEventListener("visibilitychange", claim);
addEventListener("focus", claim);

function list() {
  return document.getElementById("arriving");
}

// A browser has few connections to a server, so that only the tab that was looked at last has this
// stream, too. It takes the lock from the others.
function claim() {
  if (turn || document.visibilityState !== "visible" || !list()) return;
  const mine = { source: null };
  turn = mine;
  const held = navigator.locks.request(LOCK, { steal: true }, () => hold(mine));
  held.catch(() => {}).finally(() => {
    mine.source?.close();
    turn = null;
    forget();
  });
}

function hold(mine) {
  const source = new EventSource(list().dataset.stream);
  mine.source = source;
  source.onopen = forget; // the server begins with all that has arrived
  source.addEventListener("part", (event) => take(JSON.parse(event.data)));
  return new Promise((resolve) => {
    source.addEventListener("end", resolve);
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return;
      resolve();
      setTimeout(claim, AGAIN);
    };
  });
}

// Sends a message, which is shown at once, and until the server has rendered it.
async function send(form) {
  const address = form.getAttribute("action");
  if (!address) return; // no agent waits for a message yet
  const field = form.elements["form.answer"];
  const said = field.value;
  sent = { said, number: users(), element: made("li", "card user arriving") };
  last(sent, made("p", "meta")).append("Sending…");
  last(sent, made("p", "body")).append(readable(said));
  const body = new URLSearchParams(new FormData(form));
  field.value = "";
  field.focus(); // also after a click on the button
  open(form, null);
  isAtEnd = true;
  show();
  const answer = await fetch(address, { method: "POST", body }).catch(() => null);
  if (answer?.ok) return;
  sent?.element.remove();
  sent = null;
  const shown = form.isConnected ? form : document.getElementById(form.id);
  shown.elements["form.answer"].value = said;
  open(shown, address);
  shown.submit(); // shows why it is refused
}

// Lets a composer send to an address, or only take text until an agent waits for the next message.
function open(form, address) {
  if (address) form.setAttribute("action", address);
  else form.removeAttribute("action");
  form.querySelector("button").disabled = !address;
}

function users() {
  return live.querySelectorAll(".talk:not(#arriving) .user").length;
}

function forget() {
  for (const reply of replies.values()) reply.element.remove();
  replies.clear();
}

function take({ address, part, agent, text, call, tool }) {
  if (part === "start" || part === "restart") drop(address);
  if (part === "start" && replies.size < MOST_REPLIES) replies.set(address, begun(agent, address));
  const reply = replies.get(address);
  if (!reply) return; // its beginning was missed
  if (part === "end") {
    reply.ended = true;
    setTimeout(() => { if (replies.get(address) === reply) drop(address); }, KEPT);
  } else if (part === "call") {
    add(reply, `call ${call}`, text, () => fold(reply, readable(tool ?? "Call")));
  } else if (part === "reasoning") {
    add(reply, part, text, () => fold(reply, "Thinking"));
  } else if (part === "text") {
    add(reply, part, text, () => last(reply, made("p", "body")));
  }
  if (part === "start") show();
}

function drop(address) {
  replies.get(address)?.element.remove();
  replies.delete(address);
}

function begun(agent, address) {
  const element = made("li", "card reply arriving");
  const head = made("p");
  const name = made("strong");
  name.textContent = readable(agent ?? "");
  const note = made("span", "meta");
  note.textContent = "is writing…";
  head.append(name, " ", note);
  element.append(head);
  return { address, element, pieces: new Map(), left: MOST_TEXT, ended: false };
}

// Adds a piece to a part of a reply, which is made with its first piece.
function add(reply, key, text, make) {
  if (reply.left <= 0) return;
  if (!reply.pieces.has(key)) {
    const node = new Text();
    make().append(node);
    reply.pieces.set(key, node);
    reply.left -= SMALLEST;
  }
  reply.pieces.get(key).appendData(readable(text.slice(0, reply.left)));
  reply.left -= text.length;
  follow();
  if (reply.left <= 0) last(reply, made("p", "meta")).append("The rest follows when it is complete.");
}

function fold(reply, name) {
  const box = made("details");
  const summary = made("summary");
  summary.textContent = name;
  const text = made("p", "body");
  box.append(summary, text);
  last(reply, box);
  return text;
}

function last(reply, part) {
  reply.element.append(part);
  return part;
}

// Puts the replies at the end of the conversation that is shown, without those that it has complete.
function show() {
  const place = list();
  const complete = new Set(
    [...live.querySelectorAll("[data-turn]")].map((entry) => entry.dataset.turn),
  );
  for (const { address, ended } of [...replies.values()]) {
    if (ended && complete.has(address)) drop(address);
  }
  if (sent && users() > sent.number) {
    sent.element.remove();
    sent = null;
  }
  if (sent) place?.append(sent.element);
  const { of } = place?.dataset ?? {};
  for (const { address, element } of replies.values()) {
    const above = address.slice(0, Math.max(0, address.lastIndexOf("/")));
    if (place && (!of || above === of)) place.append(element);
    else element.remove();
  }
  follow();
}

function follow() {
  if (isAtEnd) scrollTo(0, document.documentElement.scrollHeight);
}

function readable(text) {
  return text.replaceAll("\r\n", "\n").replace(HARMFUL, "\ufffd");
}

function made(name, classes = "") {
  const element = document.createElement(name);
  if (classes) element.className = classes;
  return element;
}
