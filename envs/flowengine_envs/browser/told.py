"""Observations as models are told of them: within a bound, and with the page in a marked block."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flowengine.sdk.untrusted import marked, one_line
from flowengine_envs.browser.observation import WebObservation

_MOST = 20
"""Lines, tabs, files or dialogs that are listed."""
_ELEMENTS = "Elements (their names may be labels that the page does not show):"
_NAME = re.compile(r'"((?:[^"\\]|\\.){300})(?:[^"\\]|\\.)+"|(^ *- /[a-z]+: .{300}).+', re.MULTILINE)
"""Names and attributes of elements that are too long: they may hold what no person sees."""
_AROUND = 100
"""Characters that are shown on each side of what was found."""


def told(seen: WebObservation, text: int, tree: int, offset: int = 0) -> str:
    """Return an observation for a model.

    Args:
        seen: The observation.
        text: Most characters of the content.
        tree: Most characters of the accessibility tree.
        offset: Where the content begins.

    Returns:
        What the project says of it, and in a marked block what the page says.
    """
    content, rest = _part(seen.content, offset, text)
    whole = _with_short_names(seen.ax_tree) if tree else ""
    elements = first_lines(whole, tree)
    head = [*_head(seen)]
    if rest or offset:
        end = offset + len(content)
        more = f"; read on with offset {end}" if rest else ""
        head.append(f"Text: characters {offset} to {end} of {len(seen.content)}{more}")
    left = len(whole) - len(elements) + seen.ax_tree_left_out
    if tree and left:
        head.append(f"Elements: {left} more characters are left out; look for a part of a name")
    said = [*_said(seen), content or "(no text)"]
    said += ["", _ELEMENTS, elements.rstrip()] if elements else []
    return "\n".join([*head, marked("\n".join(said), seen.url)])


def found(seen: WebObservation, text: str) -> str:
    """Return the elements and passages of an observation that hold a text, for a model.

    Args:
        seen: The observation.
        text: What to look for; case does not count.
    """
    wanted = text.casefold()
    tree = _with_short_names(seen.ax_tree)
    lines = [line.strip() for line in tree.splitlines() if wanted in line.casefold()]
    passages = [*_passages(seen.content, wanted)] if wanted else []
    said = [f"Title: {one_line(seen.title)}"]
    for name, all_of in ((_ELEMENTS, lines), ("Passages:", passages)):
        shown = [one_line(each) for each in all_of[:_MOST]]
        more = [f"({len(all_of) - _MOST} more)"] if len(all_of) > _MOST else []
        said += ["", name, *(shown or ["(none)"]), *more]
    return "\n".join([*_head(seen), marked("\n".join(said), seen.url)])


def _with_short_names(tree: str) -> str:
    return _NAME.sub(lambda found: f'"{found[1]}…"' if found[1] else f"{found[2]}…", tree)


def _head(seen: WebObservation) -> Iterator[str]:
    """Yield what the project says: words of its own and numbers, besides the address."""
    status = f" (status {seen.status})" if seen.status else ""
    yield f"Address: {one_line(seen.url)}{status}"
    if seen.error:
        yield "The action failed: the reason is the first thing in the block"
    if len(seen.tabs) > 1:
        active = next((tab.index for tab in seen.tabs if tab.active), 0)
        yield f"Tabs: {len(seen.tabs)}, the active one is {active}"
    for dialog in seen.dialogs[:_MOST]:
        yield f"Dialog: {dialog.kind}, {'accepted' if dialog.accepted else 'dismissed'}"
    for file in seen.downloads[:_MOST]:
        yield f"Download: {file.size:,} bytes" if file.path else "Download: failed"
    if seen.hidden_text_removed:
        yield f"Hidden text: {seen.hidden_text_removed} pieces were removed"
    if seen.blocked:
        yield f"Blocked: {len(seen.blocked)} hosts that may not be reached"
    if seen.challenge:
        yield "The page asks for proof that you are human. Do not try to give it; say so"
    yield from (f"Note: {note}" for note in seen.notes)


def _said(seen: WebObservation) -> Iterator[str]:
    """Yield what comes from the page besides its text."""
    if seen.error:
        yield f"Error: {seen.error}"
    if seen.title:
        yield f"Title: {one_line(seen.title)}"
    for tab in seen.tabs[:_MOST] if len(seen.tabs) > 1 else []:
        yield f"Tab {tab.index}: {one_line(tab.title, 100)} {one_line(tab.url, 200)}"
    for dialog in seen.dialogs[:_MOST]:
        yield f"Dialog: {one_line(dialog.message)}"
    for file in seen.downloads[:_MOST]:
        yield f"Download: {file.path or one_line(f'{file.error} ({file.url})')}"
    yield from (f"Blocked: {one_line(each)}" for each in seen.blocked[:_MOST])
    yield ""


def _part(text: str, offset: int, most: int) -> tuple[str, bool]:
    """Return a part of a text, and whether there is more behind it."""
    end = offset + most
    return text[offset:end], end < len(text)


def first_lines(tree: str, most: int) -> str:
    """Return the beginning of a tree, in whole lines."""
    return tree if len(tree) <= most else tree[: tree.rfind("\n", 0, most + 1) + 1]


def _passages(text: str, wanted: str) -> Iterator[str]:
    folded = text.casefold()
    if len(folded) != len(text):  # letters that become two: places would not be the same
        folded = text.lower() if len(text.lower()) == len(text) else text
    at = folded.find(wanted)
    while at >= 0:
        yield f"at {at}: …{text[max(0, at - _AROUND) : at + len(wanted) + _AROUND]}…"
        at = folded.find(wanted, at + max(len(wanted), _AROUND))
