"""Reasons why the output of a successful step, or a part of it, may be null (W305, W417).

A group returns the output of its last step, which may have been skipped. If several steps lead out
of it, it returns nothing. Parts of the output of a `parallel` or a flow may be missing, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from flowengine.flow.expressions import Note

Doubts = Mapping[str, Note]
"""Part of an output → why it may be null: `""` for the whole, `.x` for the value of the key x."""
NONE: Doubts = MappingProxyType({})


def missing(why: str, path: str) -> Note:
    """Return the warning about access to a value that may be null.

    Args:
        why: The possible cause, such as `'a' may have been skipped`.
        path: The value.
    """
    hint = f"write default({path}.…, …), or test {path} != null"
    return Note("W305", f"{why}: '{path}' is then null", hint, reason=why)


def under(path: str, doubts: Doubts) -> dict[str, Note]:
    """Return the doubts about an output by path.

    Args:
        path: Path of the output.
        doubts: Doubts about it.
    """
    return {path + part: note for part, note in doubts.items()}


def passed_on(doubts: Doubts, path: str) -> Doubts:
    """Return the doubts about a value that another output contains.

    Args:
        doubts: Doubts about the value and its parts.
        path: The output that contains it.
    """
    return {
        part: note if note.always else missing(note.reason, path + part)
        for part, note in doubts.items()
    }


def of_items(doubts: Doubts) -> Doubts:
    """Return the doubts about a list of outputs, whose parts are unknown.

    Args:
        doubts: Doubts about each output.
    """
    return {part: note for part, note in doubts.items() if note.always and not part}


def several_ways_out(group: str, lasts: Iterable[str], giving: Iterable[str]) -> Note:
    """Return the warning that a group has no output because several steps lead out of it.

    Args:
        group: The group.
        lasts: These steps, in file order.
        giving: Those of them that have an output.

    Returns:
        The warning about the use of its output.
    """
    names = [repr(one) for one in lasts]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    message = f"{group!r} has no output, because {listed} lead out of it: it is null, whichever ran"
    outputs = [f"steps.{source}.output" for source in giving]
    expression = (
        f"default({', '.join(reversed(outputs))})" if len(outputs) > 1 else "".join(outputs)
    )
    meant = f"'output: ${{{{ {expression} }}}}'" if expression else "an 'output'"
    return Note("W417", message, f"give {group!r} {meant}", always=True)
