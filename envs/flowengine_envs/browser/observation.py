"""The state of a browser after an action, its text for models, and searches in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urldefrag

from flowengine.sdk.texts.untrusted import marked
from flowengine.sdk.texts.visible_text import one_line
from flowengine_envs.browser.outline import Outline, OutlineLine

# The state of a browser after an action.


@dataclass(frozen=True)
class Tab:
    """An open tab."""

    index: int
    url: str
    title: str
    active: bool


@dataclass(frozen=True)
class DialogShown:
    """A dialog that a page opened, and its answer."""

    kind: str
    """`alert`, `confirm`, `prompt`, `beforeunload`."""
    message: str
    accepted: bool


@dataclass(frozen=True)
class Downloaded:
    """A file that a page offered."""

    path: str
    """Relative to the workspace. Empty if no file was saved."""
    size: int
    url: str
    error: str = ""
    """Why no file was saved."""


@dataclass(frozen=True)
class WebObservation:
    """A page after an action. A failure of the action is in `error`."""

    content: str
    """The visible text of the page as Markdown."""
    url: str
    screenshot: bytes
    """A PNG image, or empty."""
    ax_tree: str
    """Roles, names and states, with a reference (`[ref=e5]`) for each element."""
    error: str = ""
    """Why the action failed, or which part of the observation is missing."""
    title: str = ""
    status: int | None = None
    """Status of the page's HTTP response."""
    truncated: bool = False
    """Whether a limit truncated the content."""
    ax_tree_left_out: int = 0
    """Characters of the accessibility tree cut off by a limit."""
    hidden_text_removed: int = 0
    """Pieces of invisible text on the page, which `content` omits."""
    tabs: list[Tab] = field(default_factory=list)
    dialogs: list[DialogShown] = field(default_factory=list)
    downloads: list[Downloaded] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    """Hosts that the page tried to reach without permission."""
    invalid: list[str] = field(default_factory=list)
    """Fields with values that prevent submitting their forms, each with the browser's reason."""
    failed_requests: list[str] = field(default_factory=list)
    """Failed requests of scripts and frames since the last observation."""
    notes: list[str] = field(default_factory=list)
    """Further remarks, one sentence each."""
    challenge: bool = False
    """Whether the page is a bot check."""
    value: Any = None
    """The return value of an action such as `evaluate`."""
    needs_approval: dict[str, Any] | None = None
    """The effects that require approval before the action is performed: `action` and `target`."""
    generation: int = 1
    """Incremented each time the browser had to be restarted."""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, without the screenshot."""
        data = asdict(self)
        del data["screenshot"]
        return data


# Finds the lines of a page that are new since an earlier observation.


def is_same_page(before: WebObservation | None, after: WebObservation) -> bool:
    """Return whether two observations have the same address."""
    if before is None or not after.url:
        return False
    return urldefrag(before.url).url == urldefrag(after.url).url


def new_lines(before: str, after: str) -> Iterator[tuple[int, str]]:
    """Yield the new lines of a text, each with its offset.

    Args:
        before: The earlier text.
        after: The current text. Of equal lines, the first ones count as the earlier ones.
    """
    known = Counter(map(_compared, before.split("\n")))
    at = 0
    for line in after.split("\n"):
        compared = _compared(line)
        if known[compared] > 0:
            known[compared] -= 1
        elif compared:
            yield at, line
        at += len(line) + 1


def _compared(line: str) -> str:
    # An element's position, and which element has the focus, do not count as changes.
    return line.strip().replace(" [active]", "")


# Observations as text for models: bounded, with the page in a marked block.

_MOST = 20
"""Maximum number of lines, tabs, files or dialogs listed."""
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
    if any(each.kind in ("confirm", "prompt") and not each.accepted for each in seen.dialogs):
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


# Searches a page for elements and passages, and lists all its elements in parts.

"""Maximum number of places and passages shown at once."""
_BESIDE = 5
"""Maximum number of passages shown in addition to elements."""
_SHOWN = 4000
"""Maximum characters of elements shown at once."""
_WHOLE = 12
"""Lines of a region that is shown completely. A larger one shows only matches and controls."""
_CONTROLS = 8
"""Controls of a region that are shown in addition to matches."""
_AROUND = 100
"""Characters shown on each side of a passage."""
_DEEPEST = 20
"""Maximum indentation of a line, in levels."""
_PATH = 4
"""Maximum number of enclosing elements that are named."""


def search_text(seen: WebObservation, text: str, offset: int = 0, ref: str | None = None) -> str:
    """Return the elements of an observation that contain a text, each with its row or section.

    Args:
        seen: The observation.
        text: The text to search for, ignoring case. Its words need not be adjacent if no element
            contains them so.
        offset: Number of leading places to skip.
        ref: Search only in this element. None: the whole page.

    Returns:
        The elements with their context and its controls, and passages of the text.
    """
    wanted = text.casefold().strip()
    outline = Outline(with_short_names(seen.ax_tree))
    within = _within(outline, ref)
    if within is None:
        return _stale_reference(seen, ref or "")
    places = _places(outline, wanted, within) if wanted else []
    passages = [*_passages(seen.content, wanted)] if wanted and ref is None else []
    shown, count = _shown_places(outline, places, offset)
    lines = [*text_beside_content(seen), ELEMENTS, *(shown or ["(none)"])]
    first = [*head(seen), _counted("Found", len(places), offset, count), *_beyond(seen)]
    if ref is None and not (places and offset):
        part = passages[offset : offset + (_BESIDE if places else _MOST)]
        lines += ["", "Passages:", *([one_line(each) for each in part] or ["(none)"])]
        if len(passages) > len(part):
            first.append(_counted("Passages", len(passages), offset, len(part), more=not places))
    return "\n".join([*first, marked("\n".join(lines), seen.url)])


def elements(seen: WebObservation, offset: int = 0, ref: str | None = None) -> str:
    """Return lines of the accessibility tree of an observation.

    Args:
        seen: The observation.
        offset: Number of leading lines to skip.
        ref: Only lines of this element. None: the whole page.

    Returns:
        As many lines as are shown at once, and the number of remaining ones.
    """
    outline = Outline(with_short_names(seen.ax_tree))
    within = _within(outline, ref)
    if within is None:
        return _stale_reference(seen, ref or "")
    part = within[offset:]
    lines: list[str] = []
    count = 0
    if part and (path := outline.path(part[0])):
        lines.append(f"(in {' > '.join(_named(each) for each in path[-_PATH:])})")
    for line in _dedented(outline, part):
        if count and sum(map(len, lines)) + len(line) > _SHOWN:
            break
        lines.append(line)
        count += 1
    first = [*head(seen), _counted("Elements", len(within), offset, count, "lines"), *_beyond(seen)]
    listed = [*text_beside_content(seen), ELEMENTS, *(lines or ["(none)"])]
    return "\n".join([*first, marked("\n".join(listed), seen.url)])


def _within(outline: Outline, ref: str | None) -> range | None:
    if ref is None:
        return range(len(outline.lines))
    at = outline.find(ref)
    return None if at is None else outline.below(at)


def _beyond(seen: WebObservation) -> Iterator[str]:
    if seen.ax_tree_left_out:
        yield f"Elements: {seen.ax_tree_left_out} characters of the tree are beyond the limit"


def _stale_reference(seen: WebObservation, ref: str) -> str:
    shown = [*text_beside_content(seen), f"Error: reference {one_line(ref, 40)} is not on the page"]
    why = "Nothing was looked for: the last line of the block says why"
    return "\n".join([*head(seen), why, marked("\n".join(shown), seen.url)])


def _counted(
    what: str,
    all_of: int,
    offset: int,
    count: int,
    unit: str = "places",
    *,
    more: bool = True,
) -> str:
    """Return the total, the range that is shown, and how to request the rest."""
    if not count:
        return f"{what}: {all_of} {unit}"
    end = offset + count
    rest = f"; more with offset {end}" if more and end < all_of else ""
    return f"{what}: {all_of} {unit}, {offset + 1} to {end} are shown{rest}"


class _Place:
    """A row or section with a match."""

    def __init__(self, region: range) -> None:
        self.region = region
        self.hits: list[int] = []


def _places(outline: Outline, wanted: str, within: range) -> list[_Place]:
    """Return the places of a text, in page order."""
    hits = [at for at in within if wanted in outline.lines[at].text.casefold()]
    words = wanted.split()
    apart = not hits and len(words) > 1
    if apart:
        hits = [at for at in outline.holding(words) if at in within]
    places: list[_Place] = []
    for at in hits:
        region = outline.below(at) if apart and len(outline.below(at)) > 1 else outline.around(at)
        if not places or at not in places[-1].region:
            places.append(_Place(region))
        elif places[-1].region[0] in region and len(places[-1].region) < len(region):
            places[-1].region = region
        places[-1].hits.append(at)
    return places


def _shown_places(outline: Outline, places: Sequence[_Place], offset: int) -> tuple[list[str], int]:
    """Return lines for the places from an offset, and how many places they show."""
    shown: list[str] = []
    count, length, last = 0, 0, None
    for place in places[offset : offset + _MOST]:
        lines = [*_shown_place(outline, place)]
        heading = outline.heading(place.region)
        if heading is not None and heading != last:
            lines = [f"(under {_named(outline.lines[heading])})", *lines]
            last = heading
        length += sum(map(len, lines))
        if count and length > _SHOWN:
            break
        shown += lines
        count += 1
    return shown, count


def _shown_place(outline: Outline, place: _Place) -> Iterator[str]:
    """Yield the lines of a region. A large region shows only matches, their text and controls."""
    lines, region = outline.lines, place.region
    kept = [at for at in region if not _is_repeated(outline, at, place)]
    if len(kept) > _WHOLE:
        controls = [at for at in kept if lines[at].control and at not in place.hits][:_CONTROLS]
        kept = sorted({region[0], *place.hits[:_CONTROLS], *controls})
    yield from _dedented(outline, kept)
    left = len(region) - len(kept)
    if len(region) > _WHOLE and left:
        whole = lines[region[0]].ref if outline.below(region[0]) == region else ""
        yield f"({left} more lines{f' in {whole}' if whole else ''})"


def _is_repeated(outline: Outline, at: int, place: _Place) -> bool:
    """Return whether a line adds nothing to the first one of its region: a cell of a named row."""
    line, first = outline.lines[at], outline.lines[place.region[0]]
    if line is first or line.control:
        return False
    if line.role == "/url":
        return at not in place.hits
    return bool(line.words) and line.words.strip('"') in first.words


def _dedented(outline: Outline, numbers: Sequence[int]) -> Iterator[str]:
    least = min((outline.lines[at].depth for at in numbers), default=0)
    for at in numbers:
        line = outline.lines[at]
        yield "  " * min(line.depth - least, _DEEPEST) + one_line(line.text)


def _named(line: OutlineLine) -> str:
    ref = f" [ref={line.ref}]" if line.ref else ""
    return f"{line.role} {one_line(line.words, 80)}{ref}"


def _passages(text: str, wanted: str) -> Iterator[str]:
    end = 0
    for hit in re.finditer(re.escape(wanted), text, re.IGNORECASE):
        if hit.start() >= end:
            end = hit.start() + max(len(wanted), _AROUND)
            yield f"at {hit.start()}: …{text[max(0, hit.start() - _AROUND) : hit.end() + _AROUND]}…"
