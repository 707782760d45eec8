"""Observations as text for models: bounded, with the page in a marked block."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flowengine.sdk.untrusted import marked
from flowengine.sdk.visible_text import one_line
from flowengine_envs.browser.changes import new_lines
from flowengine_envs.browser.observation import WebObservation
from flowengine_envs.browser.outline import Outline

_MOST = 20
"""Maximum number of lines, tabs, files or dialogs listed."""
_ANSWERED = frozenset({"confirm", "prompt"})
ELEMENTS = "Elements (their names may be labels that the page does not show):"
_NAME = re.compile(r'"((?:[^"\\]|\\.){300})(?:[^"\\]|\\.)+"|(^ *- /[a-z]+: .{300}).+', re.MULTILINE)
"""Overlong names and attributes of elements, which may contain invisible text."""


def observation_text(
    seen: WebObservation,
    text: int,
    tree: int,
    offset: int = 0,
    before: WebObservation | None = None,
) -> str:
    """Return an observation for a model.

    Args:
        seen: The observation.
        text: Maximum characters of the content.
        tree: Maximum characters of the accessibility tree.
        offset: Start of the content.
        before: The observation that the model last received of this page. Only changes since then
            are shown.

    Returns:
        The project's own statements, and the page's content in a marked block.
    """
    whole = with_short_names(seen.ax_tree) if tree else ""
    if before is None:
        content, counts = _text(seen, text, offset)
        elements = first_lines(whole, tree)
        counts += _count_of_elements(whole, elements, seen.ax_tree_left_out) if tree else []
    else:
        content, counts = _new_text(before, seen, text)
        elements, more = _new_elements(before, whole, tree)
        counts += more
    lines = [*text_beside_content(seen), content]
    lines += ["", ELEMENTS, elements.rstrip()] if elements else []
    return "\n".join([*head(seen), *counts, marked("\n".join(lines), seen.url)])


def log_shown(seen: WebObservation) -> str:
    """Return a page's console output and failed requests, for a model.

    Args:
        seen: The result of the action `log`.
    """
    log = seen.value if isinstance(seen.value, dict) else {}
    lines = [f"Error: {seen.error}"] if seen.error else []
    for name, part in (("Console:", "console"), ("Failed requests:", "requests")):
        lines += [name, *(log.get(part) or ["(none)"]), ""]
    return "\n".join([*head(seen), marked("\n".join(lines), seen.url)])


def is_cut(seen: WebObservation, text: int, tree: int) -> bool:
    """Return whether a page is too large to be shown at once."""
    return len(seen.content) > text or len(seen.ax_tree) > tree


def _text(seen: WebObservation, most: int, offset: int) -> tuple[str, list[str]]:
    """Return a part of the text, and its position."""
    end = offset + most
    content, rest = seen.content[offset:end], end < len(seen.content)
    counts = []
    if rest or offset:
        end = offset + len(content)
        more = f"; read on with offset {end}" if rest else ""
        counts.append(f"Text: characters {offset} to {end} of {len(seen.content)}{more}")
    return content or "(no text)", counts


def _count_of_elements(whole: str, shown: str, beyond: int) -> list[str]:
    """Return the number of omitted elements, and how to request them."""
    if len(shown) == len(whole) and not beyond:
        return []
    end = shown.count("\n")
    left = f"; {beyond} characters are beyond the limit" if beyond else ""
    more = f"lines 1 to {end} of {whole.count(chr(10))}; list more with offset {end}"
    return [f"Elements: {more if len(shown) < len(whole) else 'all lines'}{left}"]


def _new_text(before: WebObservation, seen: WebObservation, most: int) -> tuple[str, list[str]]:
    """Return the new lines of the text, and how to read the others."""
    shown, length, rest = [], 0, ""
    for at, line in new_lines(before.content, seen.content):
        left = most - length
        shown.append(line[:left])
        length += len(shown[-1]) + 1
        if length > most:
            rest = f"; read on with offset {at + len(shown[-1])}"
            break
    what = "only what is new since the last answer is shown" if shown else "nothing is new"
    count = f"Text: {what}, of {len(seen.content)} characters{rest}"
    return "\n".join(shown) or "(nothing new)", [count]


def _new_elements(before: WebObservation, whole: str, most: int) -> tuple[str, list[str]]:
    """Return the new controls, headings and rows of the tree. New text is shown elsewhere."""
    lines = [line for _, line in new_lines(with_short_names(before.ax_tree), whole)]
    outline = Outline("\n".join(lines))
    kept = [raw for raw, line in zip(lines, outline.lines, strict=True) if line.stands_out]
    least = min((len(line) - len(line.lstrip(" ")) for line in kept), default=0)
    shown = first_lines("".join(f"{line[least:]}\n" for line in kept), most)
    left = len(kept) - shown.count("\n")
    count = f"Elements: {len(lines)} lines are new, of {whole.count(chr(10))}"
    return shown, [
        f"{count}; {left} controls of them are left out: look for them" if left else count
    ]


def with_short_names(tree: str) -> str:
    """Return a tree with its long names and attributes truncated."""
    return _NAME.sub(lambda match: f'"{match[1]}…"' if match[1] else f"{match[2]}…", tree)


def head(seen: WebObservation) -> Iterator[str]:
    """Yield the project's own statements. Their only page-controlled text is the address."""
    status = f" (status {seen.status})" if seen.status else ""
    yield f"Address: {one_line(seen.url)}{status}"
    if seen.error:
        yield "The action failed: the reason is the first thing in the block"
    if len(seen.tabs) > 1:
        active = next((tab.index for tab in seen.tabs if tab.active), 0)
        yield f"Tabs: {len(seen.tabs)}, the active one is {active}"
    for dialog in seen.dialogs[:_MOST]:
        yield f"Dialog: {dialog.kind}, {'accepted' if dialog.accepted else 'dismissed'}"
    if any(each.kind in _ANSWERED and not each.accepted for each in seen.dialogs):
        yield "To answer such a dialog, say how before you repeat the action that opens it"
    for file in seen.downloads[:_MOST]:
        yield f"Download: {file.size:,} bytes" if file.path else "Download: failed"
    if seen.hidden_text_removed:
        yield f"Hidden text: {seen.hidden_text_removed} pieces were removed"
    if seen.invalid:
        yield f"Invalid: {len(seen.invalid)} fields; the browser sends no form with them"
    if seen.failed_requests:
        yield f"Failed requests: {len(seen.failed_requests)}"
    if seen.blocked:
        yield f"Blocked: {len(seen.blocked)} hosts that may not be reached"
    if seen.challenge:
        yield "The page asks for proof that you are human. Do not try to give it; say so"
    yield from (f"Note: {note}" for note in seen.notes)


def text_beside_content(seen: WebObservation) -> Iterator[str]:
    """Yield texts from the page other than its content."""
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
    yield from (f"Invalid: {one_line(each)}" for each in seen.invalid[:_MOST])
    yield from (f"Failed request: {one_line(each)}" for each in seen.failed_requests[:_MOST])
    yield from (f"Blocked: {one_line(each)}" for each in seen.blocked[:_MOST])
    yield ""


def first_lines(tree: str, most: int) -> str:
    """Return the beginning of a tree, in whole lines."""
    return tree if len(tree) <= most else tree[: tree.rfind("\n", 0, most + 1) + 1]
