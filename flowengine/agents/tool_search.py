"""Tools that are offered to a model only once it has found them (`defer`).

A model with hundreds of tools reads all of their schemas with each request. Instead, it is offered
one tool that finds others by their purpose. Tools found are offered from the next turn on,
after all other tools, so that providers can cache what comes before.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence

from flowengine.agents.text_calls.marked_form import ToolOffer
from flowengine.sdk import Plain
from flowengine.sdk.tools.schemas import record

FIND = "find_tools"
MOST = 5
"""Maximum number of tools found by one call."""
_GROUPS = 20
"""Maximum number of groups of tools that the description names."""
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def finder(deferred: Sequence[ToolOffer]) -> ToolOffer:
    """Return the tool that finds others.

    Args:
        deferred: The tools to be found.
    """
    groups = Counter(tool.name.partition(".")[0] for tool in deferred if "." in tool.name)
    named = ", ".join(f"{name} ({count})" for name, count in groups.most_common(_GROUPS))
    of = f", among them those of {named}" if named else ""
    query: Plain = {"type": "string", "description": "What the tool should do, in a few words."}
    return ToolOffer(
        FIND,
        f"Finds further tools by what they do. There are {len(deferred)}{of}. "
        "Those found can be called from your next reply on.",
        record({"query": query}),
    )


def found(query: str, deferred: Iterable[ToolOffer]) -> list[str]:
    """Return the names of the tools that fit a query best, at most `MOST`.

    Args:
        query: Words. A tool needs to have only one of them.
        deferred: The tools.
    """
    words = [f'"{word}"' for word in _words(query)]
    if not words:
        return []
    index = sqlite3.connect(":memory:")
    try:
        index.execute("CREATE VIRTUAL TABLE tools USING fts5(id UNINDEXED, name, says, args,"
                      " tokenize = 'porter unicode61')")  # fmt: skip
        rows = (
            (tool.name, " ".join(_words(tool.name)), tool.description,
             " ".join(_words(" ".join(tool.schema["properties"]))))
            for tool in deferred
        )  # fmt: skip
        index.executemany("INSERT INTO tools VALUES (?, ?, ?, ?)", rows)
        best = index.execute(
            "SELECT id FROM tools WHERE tools MATCH ?"
            " ORDER BY bm25(tools, 0, 4, 2, 1), rowid LIMIT ?",
            (" OR ".join(words), MOST),
        )
        return [name for (name,) in best]
    finally:
        index.close()


def told(names: Sequence[str]) -> str:
    """Return the result of a search for the model.

    Args:
        names: The tools that were found. Their descriptions come with the next request.
    """
    if not names:
        return "No tool fits. Try other words."
    return f"You can now call: {', '.join(names)}."


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_HUMP.sub(" ", text))]
