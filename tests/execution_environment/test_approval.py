# Shows E109
"""Approval before an environment is opened (E67 to E72, E109)."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flowengine.errors import Conflict, UsageError
from flowengine.execution_environment import ApprovalPending, EnvironmentManager, policy_approval
from flowengine.execution_environment.policy_approval import Question
from flowengine.sdk import Refused, Rejected
from tests.execution_environment.toy import SPEC, Heard, Toy

Make = Callable[..., EnvironmentManager]
ASKS = {**SPEC, "approval": {"reason": "to count"}, "policy": {"allow": ["ls", "cat"]}}


class Person:
    """Answers questions, and records them."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []
        self.when_asked: Callable[[], object] = lambda: None

    def __call__(self, question: Question) -> Any:
        self.asked.append(question)
        self.when_asked()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def person() -> Iterator[Callable[..., Person]]:
    """Register an approver with the given answers as the handler."""

    def answering(*answers: Any) -> Person:
        policy_approval.unregister_handler("person")
        one = Person(*answers)
        policy_approval.register_handler("person", one)
        policy_approval.configure_policy_approval("person")
        return one

    yield answering
    policy_approval.unregister_handler("person")
    policy_approval.unregister_handler("other")
    policy_approval.configure_policy_approval()


# Shows E67
def test_nothing_starts_before_the_answer(
    manager: EnvironmentManager, toy: Toy, person: Callable[..., Person]
) -> None:
    heard = Heard(manager)
    asked = person({"approved": True})
    tries: list[int] = []
    asked.when_asked = lambda: tries.append(toy.tries)

    handle = manager.ensure(ASKS)

    assert tries == [0]

    assert toy.opens == 1
    names = ["declared", "approval_required", "ensuring", "ready"]
    assert heard.names() == names
    question = asked.asked[0]
    assert (question.kind, question.scope, question.owner_id) == ("toy", "session", "s")
    assert (question.resource_key, question.reason) == ("toy", "to count")
    assert question.policy["allow"] == ["ls", "cat"]
    assert handle.state == "ready"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"approved": False, "reason": "not today"}, Rejected),
        ({"approved": False, "reason": "not today", "by": "policy"}, Refused),
    ],
)
# Shows E67
def test_a_no_opens_nothing_and_leaves_the_spec_declared(
    manager: EnvironmentManager,
    toy: Toy,
    person: Callable[..., Person],
    answer: dict[str, Any],
    error: type[Exception],
) -> None:
    asked = person(answer)
    for _ in range(2):
        with pytest.raises(error, match="not today"):
            manager.ensure(ASKS)

    assert toy.tries == 0
    assert len(asked.asked) == 1  # the answer is kept
    assert [each["state"] for each in manager.list()] == ["declared"]


# Shows E72
def test_one_question_for_a_spec_however_often_it_is_ensured(
    manager: EnvironmentManager, toy: Toy, person: Callable[..., Person]
) -> None:
    asked = person({"approved": True})

    async def three() -> None:
        await asyncio.gather(*[manager.async_ensure(ASKS) for _ in range(3)])

    asyncio.run(three())
    for handle in [manager.ensure(ASKS) for _ in range(2)]:
        manager.release(handle.id)
        manager.release(handle.id)
    manager.release(str(manager.declare(ASKS)["id"]))
    assert toy.releases == 1
    manager.ensure(ASKS)
    assert len(asked.asked) == 1

    manager.ensure({**ASKS, "config": {"size": 2}})
    assert len(asked.asked) == 2


# Shows E68
def test_handlers_have_names_and_a_spec_can_choose(
    manager: EnvironmentManager, toy: Toy, person: Callable[..., Person]
) -> None:
    nobody = person({"approved": False})
    asked: list[Question] = []

    async def other(question: Question) -> dict[str, Any]:
        asked.append(question)
        return {"approved": True}

    def plain(question: Question) -> dict[str, Any]:
        asked.append(question)
        return {"approved": True}

    policy_approval.register_handler("other", other)
    policy_approval.register_handler("plain", plain)
    with pytest.raises(UsageError, match="already"):
        policy_approval.register_handler("other", other)
    with pytest.raises(UsageError, match=r"no approval handler 'nobody'\n.*person"):
        policy_approval.configure_policy_approval("nobody")

    rules = {"policy": {"allow": ["ls"]}}
    for handler in ("other", "plain"):
        approval = {"handler": handler, "reason": f"to ask {handler}"}
        assert manager.ensure({**SPEC, **rules, "approval": approval}).state == "ready"
    with pytest.raises(Rejected, match="no approval handler 'gone'"):
        manager.ensure({**SPEC, "approval": {"handler": "gone"}})
    assert nobody.asked == []
    assert [(each.kind, each.scope, each.owner_id, each.resource_key) for each in asked] == [
        ("toy", "session", "s", "toy")
    ] * 2
    assert [each.policy["allow"] for each in asked] == [["ls"]] * 2
    assert [each.reason for each in asked] == ["to ask other", "to ask plain"]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (None, "NoneType"),
        ("yes", "str"),
        ({"approved": "true"}, "with true or false"),
        ({}, "with true or false"),
        ({"approved": 1}, "with true or false"),
        (ZeroDivisionError("SEKRET"), "raised ZeroDivisionError"),
        (SystemExit(0), "raised SystemExit"),
        ({"approved": True, "policy": {"allow": ["ls", "rm"]}}, "more than the spec: 'allow'"),
        ({"approved": True, "policy": {"network": "any"}}, "more than the spec: 'network'"),
        ({"approved": True, "policy": {"secret_doors": True}}, "'secret_doors' is not a rule"),
        ({"approved": True, "policy": "all"}, "its policy is not a mapping"),
    ],
)
def test_a_bad_answer_is_a_no_with_its_cause(
    manager: EnvironmentManager,
    toy: Toy,
    person: Callable[..., Person],
    answer: Any,
    cause: str,
) -> None:
    person(answer, {"approved": True})

    with pytest.raises(Rejected, match=cause) as rejected:
        manager.ensure(ASKS)

    assert "SEKRET" not in str(rejected.value)
    assert toy.tries == 0
    assert manager.ensure(ASKS).state == "ready"  # asked again, because there was no answer


def test_a_late_answer_is_a_no(
    manager: EnvironmentManager, toy: Toy, person: Callable[..., Person]
) -> None:
    person({"approved": True})

    async def slow(question: Question) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {"approved": True}

    policy_approval.register_handler("other", slow)
    policy_approval.configure_policy_approval("other", seconds=0.05)

    with pytest.raises(Rejected, match="did not answer in time"):
        manager.ensure(ASKS)

    assert toy.tries == 0


def test_an_answer_can_narrow_the_policy(
    manager: EnvironmentManager, toy: Toy, person: Callable[..., Person]
) -> None:
    toy.holds = {"network": "own namespace"}
    person({"approved": True, "policy": {"allow": ["ls"], "network": "none"}})

    handle = manager.ensure(ASKS)

    assert handle.resource.request.policy.allow == ["ls"]
    assert handle.resource.request.policy.network == "none"


@pytest.mark.parametrize("key", ["ask", "deny_network"])
def test_an_answer_that_forbids_less_is_none(key: str) -> None:
    policy = {key: ["one", "two"]}
    assert policy_approval._widens({key: ["one"]}, policy) == f"'{key}'"
    assert policy_approval._widens({key: ["one", "two", "three"]}, policy) is None


# Shows E71
def test_an_answer_may_come_later_and_the_first_one_stands(
    manager: EnvironmentManager, toy: Toy, person: Callable[..., Person], make: Make
) -> None:
    asked = person({"pending": True})
    with pytest.raises(ApprovalPending) as pending:
        manager.ensure(ASKS)
    question = pending.value.question
    assert question == asked.asked[0].id
    assert toy.tries == 0

    with pytest.raises(Rejected, match="true or false"):
        manager.answer(question, {"approved": "yes"})
    manager.answer(question, {"approved": True})
    manager.answer(question, {"approved": True})
    with pytest.raises(Conflict, match="already been answered: yes"):
        manager.answer(question, {"approved": False})
    assert manager.ensure(ASKS).state == "ready"
    assert len(asked.asked) == 1

    other = make()  # as after a restart
    other.declare(ASKS)
    other.answer(question, {"approved": False, "reason": "no more"})
    with pytest.raises(Rejected, match="no more"):
        other.ensure(ASKS)


# The terminal

PROGRAM = """
import sys
from flowengine.execution_environment import policy_approval
from flowengine.execution_environment.policy_approval import Question, input_timeout_fail
policy_approval._seconds = float(sys.argv[1])
policy = {"network": "any"}
question = Question("q", "toy", "session", "s", "box", "toy", policy, "why \\x1b[2J not")
print(input_timeout_fail(question))
"""


def ask_on_terminal(keys: bytes, seconds: float = 60) -> tuple[str, str]:
    """Return the output on a pseudo-terminal, and the handler's answer."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(seconds)],
        stdin=other,
        stderr=other,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(other)
    shown = b""
    while b"[yes/no]" not in shown:
        shown += os.read(main, 1000)
    if keys:
        os.write(main, keys)
    answer, _ = process.communicate(timeout=60)
    os.close(main)
    return shown.decode(), answer


@pytest.mark.parametrize(
    ("keys", "approved"),
    [(b"yes\n", True), (b"YES\n", True), (b"y\n", False), (b"\n", False), (b"nope\n", False)],
)
# Shows E69
def test_the_default_handler_asks_on_the_terminal(keys: bytes, approved: bool) -> None:
    shown, answer = ask_on_terminal(keys)

    assert "Environment 'box': toy by toy, session s. Policy: network: any." in shown
    assert "\x1b[2J" not in shown
    assert f"'approved': {approved}" in answer


# Shows E69
def test_silence_on_the_terminal_means_no() -> None:
    _, answer = ask_on_terminal(b"", seconds=0.2)

    assert "'approved': False" in answer
    assert "no answer within 0.2 s" in answer


@pytest.mark.parametrize("stdin", ["null", "pipe", "closed"])
# Shows E70
def test_without_a_terminal_nothing_is_read_and_the_answer_is_no(stdin: str) -> None:
    program = PROGRAM + "\nimport os; print(os.read(0, 1) if sys.argv[2] == 'pipe' else '')"
    command = [sys.executable, "-c", program, "30", stdin]
    if stdin == "closed":
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    given = {"input": "y\n" * 100} if stdin == "pipe" else {"stdin": subprocess.DEVNULL}
    done = subprocess.run(command, **given, capture_output=True, text=True, timeout=60, check=True)

    assert "'approved': False" in done.stdout
    assert "register_handler" in done.stdout
    assert stdin != "pipe" or "b'y'" in done.stdout  # the first byte was not consumed


def test_a_plain_handler_runs_beside_the_loop(
    manager: EnvironmentManager, toy: Toy, person: Callable[..., Person]
) -> None:
    """A blocking handler delays nothing else."""
    go, begun = threading.Event(), threading.Event()

    def blocks(question: Question) -> dict[str, Any]:
        begun.set()
        assert go.wait(60)
        return {"approved": True}

    person({"approved": True})
    policy_approval.register_handler("other", blocks)

    async def main() -> None:
        asking = asyncio.ensure_future(
            manager.async_ensure({**SPEC, "approval": {"handler": "other"}})
        )
        await asyncio.to_thread(begun.wait, 60)
        assert (await manager.async_ensure({**SPEC, "owner_id": "x"})).state == "ready"
        go.set()
        await asking

    asyncio.run(main())
