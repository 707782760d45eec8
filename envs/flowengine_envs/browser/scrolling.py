"""Scrolls pages and areas inside them, and reports how far.

The page returns numbers. Only integers are accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

_PART = 0.8
"""Part of the visible area that is scrolled by default."""
_SCRIPT = """
  const place = (at, across) => Math.abs(across ? at.scrollLeft : at.scrollTop);
  const rest = (at, across, back) => back ? place(at, across) : Math.max(0, Math.floor(across
    ? at.scrollWidth - at.clientWidth - place(at, true)
    : at.scrollHeight - at.clientHeight - place(at, false)));
  const root = document.scrollingElement || document.documentElement;
  const scrolls = (at, across) => {
    const style = getComputedStyle(at), flow = across ? style.overflowX : style.overflowY;
    const more = across ? at.scrollWidth > at.clientWidth : at.scrollHeight > at.clientHeight;
    return at === root || more && /auto|scroll|overlay/.test(flow);
  };
  const outer = at => at.parentElement || at.getRootNode().host || null;
  const nearest = (at, across) => {
    while (at && !scrolls(at, across)) at = outer(at);
    return at || root;
  };
  const moved = async (at, before, [across, back], patience) => {
    const until = Date.now() + patience;
    const now = () => place(at, across) !== before || Date.now() > until;
    const frame = () => new Promise(done => { setTimeout(done, 50); requestAnimationFrame(done); });
    while (!now()) await frame();
    for (let more = 0; more < 3; more++) await frame();  // what the page does when it is scrolled
    return [Math.round(Math.abs(place(at, across) - before)), rest(at, across, back)];
  };
"""
_INSIDE = f"""async (element, [part, pixels, ...way]) => {{{_SCRIPT}
  const [across, back] = way, at = nearest(element, across), before = place(at, across);
  const far = (pixels || part * (across ? at.clientWidth : at.clientHeight)) * (back ? -1 : 1);
  at.scrollBy({{left: across ? far : 0, top: across ? 0 : far, behavior: "instant"}});
  return await moved(at, before, way, 0);
}}"""
_BEFORE = f"""way => {{{_SCRIPT}
  const [across, back] = way;
  const under = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
  if (under && under.tagName === "IFRAME") return null;
  let at = nearest(under, across);
  while (at !== root && !rest(at, across, back)) at = nearest(outer(at), across);
  return {{at, before: place(at, across)}};
}}"""
_AFTER = f"""async (known, [patience, ...way]) => {{{_SCRIPT}
  return known ? await moved(known.at, known.before, way, patience) : null;
}}"""
_MOST = 10_000_000
"""Pixels, more than any page has."""
_PATIENCE = 500
"""Milliseconds within which a scrollable page scrolls."""


async def scroll_inside(
    element: Locator, direction: str, pixels: int | None, seconds: float
) -> str:
    """Scroll the list or area that an element is in, or the element itself.

    Args:
        element: The element.
        direction: `up`, `down`, `left` or `right`.
        pixels: Distance. None: most of its visible part.
        seconds: How long to wait for the element.

    Returns:
        The distance scrolled, and the distance left.
    """
    across, back = _way(direction)
    moved = await element.evaluate(_INSIDE, [_PART, pixels, across, back], timeout=seconds * 1000)
    return _movement(moved, direction)


async def scroll_window(page: Page, direction: str, pixels: int | None) -> str:
    """Scroll the area in the middle of the window with the mouse wheel.

    Args:
        page: The page.
        direction: `up`, `down`, `left` or `right`.
        pixels: Distance. None: most of the window.

    Returns:
        The distance scrolled, and the distance left.
    """
    across, back = _way(direction)
    size = page.viewport_size or {"width": 1280, "height": 720}
    by = pixels or int(size["width" if across else "height"] * _PART)
    by = -by if back else by
    known = await page.evaluate_handle(_BEFORE, [across, back])
    await page.mouse.move(size["width"] / 2, size["height"] / 2)
    await page.mouse.wheel(by if across else 0, 0 if across else by)
    moved = await known.evaluate(_AFTER, [_PATIENCE, across, back])
    return _movement(moved, direction)


def _way(direction: str) -> tuple[bool, bool]:
    """Return whether a direction is horizontal, and whether it is backwards."""
    return direction in {"left", "right"}, direction in {"up", "left"}


def _movement(moved: object, direction: str) -> str:
    if not isinstance(moved, list) or not all(isinstance(each, int) for each in moved):
        return f"Scrolled {direction}."
    by, rest = (min(max(each, 0), _MOST) for each in moved)
    left = f"{rest} more pixels are there" if rest > 0 else "this is the end"
    return f"Scrolled {direction} by {by} pixels; {left}." if by else f"Nothing scrolled; {left}."
