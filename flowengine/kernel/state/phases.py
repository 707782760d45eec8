"""The phases of a unit and the moves between them: every move is checked.

| phase | meaning |
|---|---|
| ready | nothing of it is under way: it is about to begin, between two attempts, or about to end |
| asked | people are asked before its attempt begins |
| lock | it is queued for a lock |
| budget | a budget is used up, and somebody is asked whether to raise it |
| run | its attempt runs |
| pause | it waits before its next attempt or round |
| wait | a wait is open: an approval, a question to a person, a signal, a time |
| scope | a scope runs inside it: a group or a subflow |
| ask | a crash left its attempt uncertain, or its environment is gone: somebody decides |
| held | it failed, and is to begin anew: within a `retry` or a fork |
"""

from __future__ import annotations

from typing import Literal

Phase = Literal["ready", "asked", "lock", "budget", "run", "pause", "wait", "scope", "ask", "held"]

MOVES: dict[Phase, frozenset[Phase]] = {
    "ready": frozenset({"asked", "lock", "budget", "run", "pause", "wait", "scope", "ask", "held"}),
    "asked": frozenset({"ready"}),
    "lock": frozenset({"ready"}),
    "budget": frozenset({"ready"}),
    "run": frozenset({"ready", "ask"}),
    "pause": frozenset({"ready"}),
    "wait": frozenset({"ready"}),
    "scope": frozenset({"ready"}),
    "ask": frozenset({"ready"}),
    "held": frozenset({"ready", "run"}),  # `run`: a result came after the failure, and counts
}
