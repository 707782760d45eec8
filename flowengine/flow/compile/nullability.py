"""Why the output of a step that succeeded may be null all the same, or a part of it (W305, W417).

A group gives the output of its last step, which may have been skipped; where several steps lead out
of it, it gives nothing. A part of what a `parallel` or a flow gives may be missing, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from flowengine.flow.expressions import Note

Doubts = Mapping[str, Note]
"""Part of an output → why it may be null: `""` for the whole, `.x` for what is under the key x."""
NONE: Doubts = MappingProxyType({})


def missing(why: str, path: str) -> Note:
    """Return the warning about reading inside a value that may be null.

    Args:
        why: What may have happened, such as `'a' may have been skipped`.
        path: The value.
    """
    hint = f"write default({path}.…, …), or test {path} != null"
    return Note("W305", f"{why}: '{path}' is then null", hint, reason=why)


def under(path: str, doubts: Doubts) -> dict[str, Note]:
    """Return the doubts about an output by the paths under which it is named.

    Args:
        path: Of the output.
        doubts: About it.
    """
    return {path + part: note for part, note in doubts.items()}


def passed_on(doubts: Doubts, path: str) -> Doubts:
    """Return the doubts about a value where another output gives it.

    Args:
        doubts: About the value, and its parts.
        path: The output that gives it.
    """
    return {
        part: note if note.always else missing(note.reason, path + part)
        for part, note in doubts.items()
    }


def of_items(doubts: Doubts) -> Doubts:
    """Return the doubts about a list of outputs: nothing is known of their parts.

    Args:
        doubts: About each.
    """
    return {part: note for part, note in doubts.items() if note.always and not part}


def several_ways_out(group: str, lasts: Iterable[str], giving: Iterable[str]) -> Note:
    """Say that a group gives nothing, because several steps lead out of it.

    Args:
        group: The group.
        lasts: These steps, in file order.
        giving: Those of them that have an output.

    Returns:
        The warning about naming its output.
    """
    names = [repr(one) for one in lasts]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    message = (
        f"{group!r} has no output of its own, because {listed} lead out of it: "
        "it is null, whichever ran"
    )
    outputs = [f"steps.{one}.output" for one in giving]
    said = f"default({', '.join(reversed(outputs))})" if len(outputs) > 1 else "".join(outputs)
    meant = f"'output: ${{{{ {said} }}}}'" if said else "an 'output'"
    return Note("W417", message, f"give {group!r} {meant}", always=True)
