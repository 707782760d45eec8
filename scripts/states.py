"""Write `docs/states.md` from the tables of moves: `python -m scripts.states`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from flowengine.execution_environment import states
from flowengine.kernel.state import phases

PAGE = Path(__file__).parents[1] / "docs" / "states.md"
INTRODUCTION = """# States and moves

Generated from the tables that the code checks each move with, by `python -m scripts.states`.
"""
MACHINES = (
    (
        "A unit: what performs the action of a step, one per item of a map",
        phases,
        "ready",
    ),
    ("An environment's handle", states, "declared"),
)


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([INTRODUCTION, *(_section(*machine) for machine in MACHINES)])


def _section(title: str, module: ModuleType, first: str) -> str:
    moves: Mapping[str, frozenset[str]] = module.MOVES
    place = module.__name__.replace(".", "/")
    meanings = dict(re.findall(r"^\| (\w+) \| (.+) \|$", module.__doc__ or "", re.MULTILINE))
    rows = [f"| `{state}` | {meanings[state]} |" for state in moves]
    arrows = [
        f"    {state} --> {then}" for state in moves for then in moves if then in moves[state]
    ]
    ends = [f"    {state} --> [*]" for state in moves if not moves[state]]
    return "\n".join(
        [
            f"## {title}\n",
            f"[{place}.py](../{place}.py)\n",
            "| state | meaning |",
            "|---|---|",
            *rows,
            "\n```mermaid",
            "stateDiagram-v2",
            f"    [*] --> {first}",
            *arrows,
            *ends,
            "```\n",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
