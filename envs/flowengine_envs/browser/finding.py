"""Searches a page for elements and passages, and lists all its elements in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowengine.sdk.untrusted import marked
from flowengine.sdk.visible_text import one_line
from flowengine_envs.browser.observation import WebObservation
from flowengine_envs.browser.observation_text import (
    ELEMENTS,
    head,
    text_beside_content,
    with_short_names,
)
from flowengine_envs.browser.outline import Outline, OutlineLine

_MOST = 20
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
    folded = text.casefold()
    if len(folded) != len(text):  # Some letters fold to two, so positions would differ.
        folded = text.lower() if len(text.lower()) == len(text) else text
    at = folded.find(wanted)
    while at >= 0:
        yield f"at {at}: …{text[max(0, at - _AROUND) : at + len(wanted) + _AROUND]}…"
        at = folded.find(wanted, at + max(len(wanted), _AROUND))
