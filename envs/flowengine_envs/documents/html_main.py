"""The main content of a page, which is moved before menus, search boxes and sidebars.

Source: HTML Living Standard, 4.4.14 (`main`) and 4.3.2 (`article`); WAI-ARIA 1.2, role `main`.
"""

from __future__ import annotations

from typing import Any

_MAIN = "//main | //*[@role='main']"
_ARTICLE = "//article"


def put_first(root: Any) -> Any:
    """Move the main content of a page to the beginning of its body, with the heading above it.

    Returns:
        Its element. None if the page marks none, or several.
    """
    body, main = root.find("body"), _main(root)
    if body is None or main is None:
        return None
    headings = root.xpath("//h1")
    if len(headings) == 1 and main not in headings[0].iterancestors():
        _move(headings[0], main, 0)
    _move(main, body, 0)
    return main


def _main(root: Any) -> Any:
    for path in (_MAIN, _ARTICLE):
        shown = {item for item in root.xpath(path) if "hidden" not in item.attrib}
        outermost = [item for item in shown if shown.isdisjoint(item.iterancestors())]
        if outermost:
            return outermost[0] if len(outermost) == 1 else None
    return None


def _move(element: Any, to: Any, at: int) -> None:
    """Move an element. The text after it stays in its place."""
    before, parent, tail = element.getprevious(), element.getparent(), element.tail or ""
    element.tail = None
    if before is not None:
        before.tail = (before.tail or "") + tail
    else:
        parent.text = (parent.text or "") + tail
    to.insert(at, element)
    if at == 0:
        element.tail, to.text = to.text, None
