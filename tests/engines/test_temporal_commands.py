# Shows D1, F60
"""Tests of the command line in Python, once more with a store in Temporal.

The transcripts of `tests/cli` say themselves where they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType

import pytest

from flowengine import Engine
from flowengine.journal.records import ENDED
from tests import command_line
from tests.cli import test_chat, test_decide, test_diff, test_evidence, test_operate, test_run
from tests.cli.conftest import flowengine, hello, refund, trio, user  # noqa: F401 - fixtures
from tests.cli.test_operate import failed, order  # noqa: F401 - as above
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.world import until

pytestmark = pytest.mark.endurance

TESTS = {
    name: test
    for module in (test_decide, test_diff, test_evidence, test_operate, test_run)
    for name, test in vars(module).items()
    if name.startswith("test_") and isinstance(test, FunctionType)
}
EXCEPTIONS: Mapping[str, tuple[str, ...]] = {
    "steps run on the host of the worker, which shows what they print": (
        "test_an_interrupt_waits_until_a_module_is_imported",
        "test_verbose_streams_what_a_shell_shows",
        "test_verbose_streams_what_functions_print",
        "test_verbose_streams_what_programs_print",
        "test_what_functions_print_does_not_stand_among_results",
        "test_what_functions_print_is_part_of_the_evidence",
        "test_what_quick_functions_print_is_streamed_and_evidence_as_well",
    ),
    "times are those of Temporal's server": (
        "test_it_stays_for_a_wait_that_is_due_soon_and_else_says_when_to_go_on",
    ),
    "the variables of the caller are not those of the worker": (
        "test_no_secret_is_in_what_is_kept_or_shown",
    ),
    "what a step printed that timed out is not kept": (
        "test_a_step_that_timed_out_shows_what_it_had_printed",
    ),
    "workers continue executions by themselves, so nothing is interrupted or due": (
        "test_an_execution_held_by_another_process_is_left_to_it",
        "test_an_interrupt_while_the_event_loop_is_made_is_told_in_one_line",
        "test_an_overdue_approval_is_shown_as_overdue",
        "test_interrupting_saves_and_says_how_to_go_on",
    ),
    "waits that open at the same time are listed in any order": (
        "test_a_dry_run_promises_only_what_the_user_may_decide",
    ),
    "the test is about a directory, or about all executions in it": (
        "test_a_fork_names_where_it_came_from_by_a_short_id",
        "test_a_reader_that_goes_away_is_no_error",
        "test_it_does_not_stay_for_ever_for_executions_that_nobody_drives",
        "test_short_ids_tell_executions_of_one_moment_apart",
        "test_what_a_run_leaves_is_private_whatever_the_umask",
    ),
}
"""Reason → the tests that do not hold in Temporal."""
EXCEPTED = {name for names in EXCEPTIONS.values() for name in names}


def once(test: FunctionType) -> FunctionType:
    """Return a copy of a test that does not run a second time with a server."""
    copy = FunctionType(
        test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__
    )
    marks = getattr(test, "pytestmark", ())
    vars(copy).update(pytestmark=[mark for mark in marks if mark.args[:1] != ("flowengine",)])
    return copy


globals().update({name: once(test) for name, test in TESTS.items() if name not in EXCEPTED})


def test_a_conversation_shows_what_it_shows_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talk.yaml").write_text(test_chat.FLOW)
    (tmp_path / "replies.yaml").write_text(test_chat.REPLIES)
    monkeypatch.chdir(tmp_path)
    said = "I am Ana\necho hi\napprove\nwho knows?\nsure?\n/cost\n/end\n"

    there = command_line.flowengine("chat", "talk.yaml", typed=said)
    here = command_line.flowengine("--store", "folder", "chat", "talk.yaml", typed=said)

    assert (there.code, here.code) == (0, 0), there.err
    assert there.out == here.out.replace("\nhi\n", "\n")  # the worker shows what tools print
    assert "→ other\n" in there.err
    first, *lines = lines_of(here.err)
    assert (first, lines) == ("unsandboxed on this host", lines_of(there.err))


def lines_of(text: str) -> list[str]:
    """Return the parts of lines that do not contain ids or times."""
    found = [line.partition(": ")[0].partition(" in ")[0] for line in text.splitlines()]
    return [
        line
        for line in found
        if not line.startswith(("  execution", "  since")) and "Call" not in line
    ]


@pytest.fixture(scope="module")
def own_store(server: StoreNamed) -> Iterator[str]:
    """A store whose lists contain only the executions of these tests."""
    with RunningWorker(server("commands")):
        yield server("commands")


@pytest.fixture(autouse=True)
def in_temporal(
    user: None,  # noqa: F811 - the fixture
    own_store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """Have commands use the store, in which nothing is open before and after."""
    # Threads of Temporal's library outlive a command.
    monkeypatch.setattr(command_line, "nothing_left", nullcontext)
    monkeypatch.setenv("FLOWENGINE_STORE", own_store)
    yield
    with Engine(own_store) as engine:
        until(lambda: is_quiet(engine), pause=0.1)


def is_quiet(engine: Engine) -> bool:
    """Cancel what is open, and return whether nothing was."""
    rows = engine.executions.list(limit=200).items
    opened = [row["execution"] for row in rows if row["status"] not in ENDED]
    for execution in opened:
        engine.executions.cancel(execution, resume=False)
    return not (opened or engine.approvals.list(assignee=None).items)
