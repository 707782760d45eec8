"""A repairer that needs no model: it knows the usual suspects."""

from __future__ import annotations

from flowengine_envs.kinds.files import Folder

SUSPECTS = [("a - b", "a * b"), ("a * b", "a + b")]
"""What is tried, one a round: wrong → perhaps right."""


def repair(work: Folder, log: str) -> str:
    """Change the code a little; the next round of tests tells whether it helped."""
    text = work.read("calc.py").decode()
    for wrong, right in SUSPECTS:
        if wrong in text:
            work.write("calc.py", text.replace(wrong, right))
            return f"{wrong} -> {right}"
    return f"no idea: {log[-200:]}"


def write_back(work: Folder) -> list[str]:
    """Bring the changed files to the project itself."""
    return work.write_back().changed
