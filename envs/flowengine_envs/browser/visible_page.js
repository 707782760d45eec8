// Returns the page as HTML without what people cannot see, and how much that was. It runs in a
// world of its own, where scripts of the page cannot change what the names here stand for.
(largest) => {
  const root = document.documentElement;
  if (!root) return { html: "", hidden: 0, cut: false, title: "", height: 0, frames: [],
    invalid: [] };
  // In a document that is not shown nothing is loaded, and no code of the page runs.
  const inert = document.implementation.createHTMLDocument("");
  const copy = inert.importNode(root, true);
  const skipped = new Set(["SCRIPT", "STYLE", "TEMPLATE", "NOSCRIPT", "HEAD", "TITLE", "SVG", "MATH"]);
  // What only programs read is a label, and no place for a text.
  const labels = ["alt", "title", "placeholder", "aria-label"];
  const label = 300;
  const backgrounds = new Map();
  const known = CSS.supports("selector(:user-invalid)"); // since Chromium 119
  const fields = new Set(known ? ["INPUT", "SELECT", "TEXTAREA"] : []);
  const invalid = [];
  let hidden = 0;

  const isText = (text) => text.trim() !== "";

  function color(value) {
    const found = /^rgba?\(([^)]+)\)$/.exec(value);
    if (!found) return null;
    const [r, g, b, a = 1] = found[1].split(/[ ,/]+/).filter(Boolean).map(Number);
    return { r, g, b, a };
  }

  // The color behind an element; null where an image, a gradient or transparency makes it unknown.
  function background(element) {
    if (backgrounds.has(element)) return backgrounds.get(element);
    let found = { r: 255, g: 255, b: 255, a: 1 };
    const style = getComputedStyle(element);
    const own = color(style.backgroundColor);
    if (style.backgroundImage !== "none" || own === null) found = null;
    else if (own.a === 1) found = own;
    else if (own.a > 0) found = null;
    else if (element.parentElement) {
      const positioned = style.position === "absolute" || style.position === "fixed";
      found = positioned ? null : background(element.parentElement);
    }
    backgrounds.set(element, found);
    return found;
  }

  function unreadable(element, style) {
    if (parseFloat(style.fontSize) < 1) return true;
    const ink = color(style.color);
    if (ink === null || style.webkitTextFillColor !== style.color) return false;
    if (ink.a < 0.05) return true;
    const behind = background(element);
    if (behind === null || ink.a < 1) return false;
    return Math.abs(ink.r - behind.r) + Math.abs(ink.g - behind.g) + Math.abs(ink.b - behind.b) < 12;
  }

  function away(element, style) {
    const box = element.getBoundingClientRect();
    if (box.width === 0 && box.height === 0) return false; // a line break, or nothing but children
    if (box.right + scrollX <= 0 || box.bottom + scrollY <= 0) return true;
    const clipped = style.overflow !== "visible" && (box.width <= 1 || box.height <= 1);
    return clipped || /^rect\((0|1)px,? (0|1)px,? (0|1)px,? (0|1)px\)$/.test(style.clip)
      || style.clipPath === "inset(50%)" || style.clipPath === "inset(100%)";
  }

  // What the browser shows in a bubble beside a field when it does not send the form.
  function refusal(field) {
    const short = (text) => String(text || "").replace(/\s+/g, " ").trim().slice(0, 100);
    const label = field.labels && field.labels.length ? field.labels[0].innerText : "";
    const name = field.getAttribute("aria-label") || label || field.placeholder || field.name;
    const unseen = field.checkVisibility({ visibilityProperty: true }) ? "" : " (cannot be seen)";
    const why = unseen && field.validity.customError ? "" : short(field.validationMessage);
    return `${short(name) || field.type}${unseen}: ${why || "its value is refused"}`;
  }

  // Returns which children a copy has, beside what they are copies of.
  function pairs(element, twin) {
    const children = [...(element.shadowRoot || element).childNodes];
    if (!element.shadowRoot) return children.map((each, at) => [each, twin.childNodes[at]]);
    const flat = children.flatMap((each) =>
      each.tagName === "SLOT" && each.assignedNodes().length ? each.assignedNodes() : [each]);
    const twins = flat.map((each) => inert.importNode(each, true));
    twin.replaceChildren(...twins);
    return flat.map((each, at) => [each, twins[at]]);
  }

  // Copies are walked beside what they are copies of, without recursion: pages are deep.
  const waiting = [{ element: root, twin: copy, lost: false, select: null }];
  while (waiting.length) {
    const { element, twin, lost: gone, select: around } = waiting.pop();
    if (invalid.length < 20 && fields.has(element.tagName) && element.matches(":user-invalid")
      && !(element.form && element.form.noValidate))
      invalid.push([element, refusal(element)]);
    const drawn = element instanceof HTMLElement && element !== root && element !== document.body;
    const select = element.tagName === "SELECT" ? element : around;
    const style = drawn ? getComputedStyle(element) : null;
    let lost = gone;
    if (drawn && !gone && !skipped.has(element.tagName)) {
      const seen = (around || element).checkVisibility({ opacityProperty: true });
      if (!seen && style.display !== "contents") {
        if (isText(element.textContent)) hidden += 1;
        twin.remove();
        continue;
      }
      lost = seen && !around && away(element, style);
    }
    // What is kept can be seen: who reads it next need not judge it by its attributes again.
    for (const name of ["style", "hidden", "aria-hidden"]) twin.removeAttribute(name);
    for (const name of labels) {
      const said = twin.getAttribute(name);
      if (said !== null && said.length > label) twin.setAttribute(name, said.slice(0, label) + "…");
    }
    const unseen = lost || (drawn && !around && !select
      && (style.visibility !== "visible" || unreadable(element, style)));
    let counted = gone;
    for (const [child, other] of pairs(element, twin)) {
      if (child.nodeType === Node.COMMENT_NODE) {
        if (isText(child.data)) hidden += 1;
        other.remove();
      } else if (child.nodeType === Node.TEXT_NODE) {
        if (!unseen || !isText(child.data) || skipped.has(element.tagName)) continue;
        if (!counted) hidden += 1;
        counted = true;
        other.remove();
      } else if (child.nodeType === Node.ELEMENT_NODE) {
        waiting.push({ element: child, twin: other, lost, select });
      }
    }
  }
  const html = copy.outerHTML;
  const frames = [...document.querySelectorAll("iframe[src]")].slice(0, 20).map((each) => each.src);
  return {
    html: html.slice(0, largest),
    hidden,
    cut: html.length > largest,
    title: document.title.slice(0, 1000),
    height: Math.max(root.scrollHeight, document.body ? document.body.scrollHeight : 0),
    frames: frames.map((each) => each.slice(0, 500)),
    invalid: invalid.sort(([one], [other]) =>
      one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1)
      .map(([, why]) => why),
  };
}
