// Keeps the picture or terminal of an environment current while it is in view. Each look is in the
// audit record, so none is made before the user asks for it, or while the tab is hidden.
const EVERY = 3000;

for (const form of document.querySelectorAll("form[data-look]")) {
  const place = document.getElementById(form.dataset.look);
  const button = form.querySelector("button");
  let busy = false;

  async function look() {
    if (busy || place.hidden || document.hidden) return;
    busy = true;
    try {
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.action, { method: "POST", body });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const shown = page.getElementById("screen");
      if (shown) place.replaceChildren(...shown.childNodes);
      document.dispatchEvent(new Event("replaced"));
    } catch {
      // The server may be back at the next look.
    } finally {
      busy = false;
    }
  }

  if (place.hidden) {
    button.ariaExpanded = "false";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      place.hidden = !place.hidden;
      button.ariaExpanded = String(!place.hidden);
      look();
    });
  }
  setInterval(look, EVERY);
}
