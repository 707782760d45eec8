"""Evidence of a failure and logs in readable form: traceback, end of the output, lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowengine.cli.terminal.output import first_line, marked_lines, when
from flowengine.errors import NotFound
from flowengine.sdk.visible_text import printable

if TYPE_CHECKING:
    from flowengine.cli.session import CliSession
    from flowengine.engines.infos import LogInfo

LINES = 10
"""Number of printed lines that are shown at the end of a run. `show --step` shows more."""


def evidence_lines(
    evidence: Mapping[str, Any], *, indent: str = "  ", most: int | None = None, step: str = ""
) -> Iterator[str]:
    """Yield the lines that show evidence.

    Args:
        evidence: As it was journaled with the failure.
        indent: Before each line.
        most: Lines of each stream. None: all lines that are kept.
        step: Address of the failed step, if it must be shown.

    Yields:
        Lines.
    """
    for name in ("traceback", "stdout", "stderr"):
        entries = evidence.get(name) or []
        lines = entries.rstrip().split("\n") if isinstance(entries, str) else entries
        if most is not None and isinstance(entries, str) and len(lines) > most:
            lines = ["…", *lines[-most:]]
        if lines:
            yield f"{indent}{name}{printable(step and f' of {step}')}"
        for line in lines:
            yield f"{indent}  {printable(line)}".rstrip()


def log_lines(log: LogInfo, *, indent: str = "  ") -> Iterator[str]:
    """Yield the lines that show what an attempt logged.

    Args:
        log: The lines.
        indent: Before each line.

    Yields:
        Lines. Those after a line break begin with `|`, so that a text cannot imitate other lines.
    """
    yield f"{indent}log"
    if log["left_out"]:
        yield f"{indent}  … ({log['left_out']} older lines are not kept)"
    for line in log["lines"]:
        first, *more = marked_lines(line["text"], indent)
        level = first_line(line["level"], 20)
        yield f"{indent}  {when(line['at'])} {level:7} {first}".rstrip()
        yield from more


def evidence_of(
    session: CliSession, execution: str, error: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Return the evidence of the failure that caused an error.

    Args:
        execution: Full id.
        error: The error of the execution.

    Returns:
        The address of the step that failed, and the evidence. Both are empty without evidence.
    """
    for address in _addresses(error):
        try:
            [step] = session.engine.show(execution, step=address)["steps"]
        except NotFound:
            continue
        tries = step.get("tries", [])
        if tries and tries[-1].get("evidence"):
            return address, tries[-1]["evidence"]
    return "", {}


def again_lines(failed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the steps that were not undone, and the command that tries again.

    Args:
        failed: The failed execution, with the keys of `Again`.

    Yields:
        Lines.
    """
    for address in failed.get("not_undone", ()):
        yield f"not undone  {printable(address)}"
    for address, fork in failed.get("undone_by", {}).items():
        yield f"undone      {printable(address)}, by the fork {printable(fork)}"
    if "command" in failed:
        yield f"try again   {failed['command']}"


def _addresses(error: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield where an error came from: first where it was reported, then its causes."""
    while error:
        if error.get("step"):
            yield error["step"]
        data = error.get("data")
        items = data.get("failed") if isinstance(data, Mapping) else None
        if error["type"] == "MapFailed" and isinstance(items, list) and items:
            error = items[0]["error"]
        else:
            error = error.get("cause")
