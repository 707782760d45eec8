"""Results of tools that are no plain data: the model is shown them, since the call was made."""

from __future__ import annotations

from pathlib import Path

from tests.agents.flows import HEAD, Case, call, flow

TOOLS = """
import itertools
from typing import Any

class Silent:
    def __str__(self):
        raise KeyError("text")
    __repr__ = __str__

def circle():
    found = []
    found.append(found)
    return found

def deep():
    found = []
    for _ in range(100_000):
        found = [found]
    return found

RESULTS = {
    "nan": lambda: float("nan"),
    "infinity": lambda: {"a": [float("inf"), 1]},
    "large": lambda: [2**100],
    "half": lambda: {"a\\ud83d": ["\\ud83d"]},
    "bytes": lambda: {"a": b"\\xff"},
    "circle": circle,
    "deep": deep,
    "silent": Silent,
    "keys": lambda: {(1, 2): 3},
    "iterator": lambda: {"a": [iter("ab")]},
    "generator": lambda: [(letter for letter in "ab")],
    "count": itertools.count,
    "object": object,
    "long": lambda: ["é" * 2_500_000],
}
CALLS = []

def act(case: str) -> Any:
    "Act."
    CALLS.append(case)
    return RESULTS[case]()
"""
SHOWN = {
    "nan": "NaN",
    "infinity": '{"a": [Infinity, 1]}',
    "large": f"[{2**100}]",
    "half": '{"a?": ["?"]}',
    "bytes": '{"a": "\\\\xff"}',
    "circle": "[[...]]",
    "deep": "list without a text: RecursionError",
    "silent": '"Silent without a text: KeyError"',
    "keys": "{(1, 2): 3}",
    "iterator": "Error: ToolError: the tool was called, but its result contains <str",
    "generator": "Error: ToolError: the tool was called, but its result contains <generator object",
    "count": "Error: ToolError: the tool was called, but its result contains count(0)",
    "object": "Error: ToolError: the tool was called, but its result contains <object",
    "long": '["ééé',
}


def check(contents: list[str], calls: list[str]) -> None:
    shown = dict(zip(SHOWN, contents, strict=True))
    assert {case: text[: len(SHOWN[case])] for case, text in shown.items()} == SHOWN
    assert len(shown["long"]) < 11_000
    assert calls == [*SHOWN]


def test_a_model_is_shown_them_in_a_flow(tmp_path: Path) -> None:
    kept = tmp_path / "calls.txt"
    append = f"with open({str(kept)!r}, 'a') as file: print(case, file=file)"
    (tmp_path / "tools.py").write_text(TOOLS.replace("CALLS.append(case)", append))
    head = HEAD.partition("tools:")[0] + 'tools: {act: {python: "tools:act"}}'
    text = flow("first: {instructions: You act., tools: [act]}", head=head)
    script = [*({"calls": [call("act", case=case)]} for case in SHOWN), {"text": "so"}]
    case = Case(tmp_path, text, script)

    assert case.run().outputs["answer"] == "so"
    contents = [case.results(turn + 1)[-1] for turn in range(len(SHOWN))]
    check(contents, kept.read_text().splitlines())
