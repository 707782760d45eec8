"""How long steps took: the time of their attempts, without pauses."""

from __future__ import annotations

from typing import Any

from flowengine.engines.inspection.steps import add_times
from flowengine.kernel.notation.times import format_time


def _step(address: str, *tries: tuple[int, int | None, str]) -> Any:
    attempts = [
        {"attempt": number, "status": status, "started_at": format_time(start)}
        | ({} if end is None else {"ended_at": format_time(end)})
        for number, (start, end, status) in enumerate(tries, 1)
    ]
    return {"address": address, "tries": attempts}


def test_only_attempts_count_and_concurrent_ones_once() -> None:
    steps = [
        _step("m"),
        _step("m[a/b]", (0, 9_000, "succeeded")),  # a group, whose steps count
        _step("m[a/b]/x", (1_000, 2_000, "failed"), (5_000, 6_000, "succeeded")),
        _step("m[1]/x", (1_500, 2_500, "succeeded")),
        _step("m[1]/ask"),
        _step("died", (0, 9_000, "interrupted"), (20_000, 20_500, "succeeded")),
        _step("open", (0, None, "running")),
    ]

    whole = add_times(steps)

    assert whole["took"] == "3s"
    assert [step.get("took") for step in steps] == [
        *("2s500ms", "2s", "2s", "1s", None, "500ms", None)
    ]
