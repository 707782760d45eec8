"""Prompts the user at the terminal for the decisions that an execution waits for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import sleep
from typing import Any

from flowengine.cli.driving.keyboard import AnswerWithdrawn, listening
from flowengine.cli.driving.progress import ProgressDisplay
from flowengine.cli.driving.watching import interrupted, watch
from flowengine.cli.login_page import LoginFailed, log_in_first
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import ask, err, first_line, show_error
from flowengine.cli.views.approvals import details, standing
from flowengine.engines.results import ExecutionResult, WaitInfo
from flowengine.engines.running.driving import AT_REST
from flowengine.engines.typed_text import by_type, edited_field, supplied_value
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.flow.export.yaml_text import inline
from flowengine.journal.records import ENDED
from flowengine.journal.store import every_item
from flowengine.kernel.view import DECIDABLE
from flowengine.sdk.texts.visible_text import printable

PATIENCE = 1.0
"""Seconds for which other steps must run before a question interrupts their progress. If they end
sooner, it is asked then."""
_LOOK = 0.1
"""Seconds between two looks whether another process still drives an execution."""


class QuestionLeft(Exception):
    """The user leaves a question open."""


def drive_and_ask(
    session: CliSession,
    call: Callable[[], ExecutionResult | None],
    dialogue: Dialogue | None = None,
    progress: ProgressDisplay | None = None,
) -> ExecutionResult | None:
    """Drive an execution, and prompt for the pending decisions that the user may make.

    Args:
        call: Drives it.
        dialogue: Prompts the user. None: the default dialogue.
        progress: As of `watch`.

    Returns:
        Its state when everything is answered or left open. None: it is not driven here.

    Raises:
        UserInterrupt: The user has stopped it.
    """
    dialogue = dialogue or Dialogue(session)
    result, _ = watch(session, call, dialogue.beside, progress)
    while result is not None and not result.ended:
        try:
            if not dialogue.has_answer(result.execution):
                break
        except KeyboardInterrupt:
            err()
            raise interrupted(session, result.execution) from None
        again = partial(_resumed, session, result.execution)
        result, _ = watch(session, again, dialogue.beside, progress)
    return result


def _resumed(session: CliSession, execution: str) -> ExecutionResult:
    """Resume an execution, or wait until another process that drives it lets it rest.

    A process that submits a decision usually also resumes the execution.

    Raises:
        Conflict: It cannot be resumed for another reason.
    """
    engine = session.engine
    while True:
        try:
            return engine.resume(execution)
        except Conflict as held:
            if held.standing is None:
                raise
        # Before the status: a message that is taken in between would leave both as at rest.
        has_messages = bool(engine.store.inbox(execution))
        result = engine.executions.result(execution)
        if (result.ended or result.status in AT_REST) and not has_messages:
            return result
        sleep(_LOOK)


class Dialogue:
    """The questions of one command: each is asked once, one at a time."""

    def __init__(self, session: CliSession) -> None:
        self._session = session
        self._asked: set[str] = set()
        self._answered = False
        self._ended = False
        self._asking: WaitInfo | None = None
        self._asks_for_optional_parts = True
        """Whether the parts of an answer that may be left empty are asked for."""
        self._over = threading.Event()
        """Set when a thread that waits for the user no longer needs the answer."""

    def has_answer(self, execution: str) -> bool:
        """Return whether a question was answered since it was driven. If not, ask now."""
        return self._answered or self._ask_next(execution)

    @contextmanager
    def beside(self, progress: ProgressDisplay) -> Iterator[None]:
        """Ask open questions in a thread while other steps run.

        Args:
            progress: Progress of these steps, held back while a question is asked.

        Yields:
            Once.
        """
        self._answered = False
        rests = threading.Event()
        asker = threading.Thread(target=self._ask_meanwhile, args=(progress, rests), daemon=True)
        asker.start()
        try:
            yield
            store, execution = self._session.engine.store, progress.execution
            if execution is not None and store.execution(execution).status not in ENDED:
                rests.set()
                asker.join()  # the question being asked may still be answered
        finally:
            self._over.set()
            rests.set()
            asker.join()
            self._over.clear()

    def _ask_meanwhile(self, progress: ProgressDisplay, rests: threading.Event) -> None:
        while not rests.wait(PATIENCE):
            if progress.execution is not None and self._next(progress.execution) is not None:
                with progress.held():
                    self._ask_next(progress.execution)

    def _ask_next(self, execution: str) -> bool:
        """Ask until a question is answered or none is left.

        Returns:
            Whether one was answered, here or by another user.
        """
        while not self._ended and (wait := self._next(execution)) is not None:
            self._asked.add(wait["id"])
            self._asking = wait
            answered: bool | None = None
            try:
                answered = self._ask(wait)
            except QuestionLeft:
                pass
            except AnswerWithdrawn:
                err()
                if self._over.is_set():
                    return False
            except EOFError:
                err()
                self._ended = True
                return False
            if answered or not self._is_open(wait):
                if answered is None:
                    decided = self._session.engine.approvals.show(wait["id"])
                    err(f"{self._session.short_wait(wait['id'])} {standing(decided)}")
                self._answered = True
                return True
        return False

    def _next(self, execution: str) -> WaitInfo | None:
        """Return the next question for this user that was not asked yet."""
        if self._ended:
            return None
        read = partial(
            self._session.engine.approvals.list,
            execution=execution,
            assignee=self._session.engine.user,
            kinds=sorted(DECIDABLE),
        )
        for wait in every_item(lambda after: read(after=after)):
            if wait["id"] not in self._asked and self._may_ask(wait):
                return wait
        return None

    def _may_ask(self, wait: WaitInfo) -> bool:
        """Return whether a question can be asked now. If not, this is called again."""
        return True

    def _is_withdrawn(self) -> bool:
        return self._over.is_set() or (self._asking is not None and not self._is_open(self._asking))

    def _is_open(self, wait: WaitInfo) -> bool:
        return self._session.engine.store.wait(wait["id"]).open

    # One question

    def _ask(self, wait: WaitInfo) -> bool:
        """Ask until there is a valid answer. Return False if it was decided elsewhere first."""
        err()
        for line in details(self._session, wait):
            err(line)
        while True:
            choice = self._choice(wait)
            answer = self._filled(wait, choice)
            try:
                if wait.get("claim"):
                    self._session.engine.approvals.claim(wait["id"])
                if choice["id"] == "approve" and "found" in wait:
                    log_in_first(self._session, wait, self._session.engine.user)
                self._session.engine.approvals.decide(
                    wait["id"], choice["id"], **answer, resume=False
                )
            except (LoginFailed, InputError) as error:
                show_error(error)
            except (Conflict, NotFound) as error:
                show_error(error)
                return False
            else:
                return True

    def _choice(self, wait: WaitInfo) -> Mapping[str, Any]:
        """Ask for the choice.

        Returns:
            The choice.

        Raises:
            QuestionLeft: The user leaves the question open.
        """
        choices: list[dict[str, Any]] = wait.get("choices", [])
        if wait["kind"] == "ask":  # its answer is a text
            return choices[0]
        names = [str(choice["id"]) for choice in choices]
        while True:
            answer = self._read(f"{', '.join(names)}? (Enter leaves it open) ").strip()
            if not answer:
                raise QuestionLeft
            if answer in names:
                return choices[names.index(answer)]
            err(f"  type {' or '.join(names)} as a whole word")

    def _filled(self, wait: WaitInfo, choice: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for the data of a choice: edits, the form, a result, a comment."""
        answer: dict[str, Any] = {}
        approves = choice.get("counts_as") == "approve"
        if approves and wait.get("edit") and self._asks_for_optional_parts:
            # Ask for the new value of each editable field. Enter keeps the old one.
            subject, allowed = wait.get("subject"), wait["edit"]
            if allowed is True:
                allowed = list(subject) if isinstance(subject, dict) else []
            edits: dict[str, Any] = {}
            for name in allowed:
                self._edit(wait, name, edits)
            answer["edit"] = edits
        if approves and "form" in wait:
            answer["form"] = self._form(wait["form"])
        if (wait["kind"] == "question" and choice["id"] == "result") or (
            choice["id"] == "respond" and "tool" in wait
        ):
            answer["value"] = self._value(wait)
        comment = choice.get("comment", "optional")
        if comment == "required" or (comment != "none" and self._asks_for_optional_parts):
            answer["comment"] = self._field("comment", "", required=comment == "required")
        return answer

    def _value(self, wait: WaitInfo) -> Any:
        """Ask for the result of a step or call, which is of the declared type."""
        what = "output of the step" if wait["kind"] == "question" else "result instead of the call"
        noun = "output" if wait["kind"] == "question" else "result"
        while True:
            text = self._read(f"{what} (JSON or text): ")
            try:
                return supplied_value(wait, text, noun)
            except InputError as error:
                show_error(error)

    def _edit(self, wait: WaitInfo, name: str, edits: dict[str, Any]) -> None:
        """Ask for the new value of a field. Enter keeps the old one."""
        subject = wait.get("subject")
        now = subject.get(name) if isinstance(subject, dict) else None
        edits.pop(name, None)
        while text := self._read(f"edit {name} [{first_line(inline(now), 60)}]: ").strip():
            try:
                edits[name] = edited_field(wait, name, text)
                return
            except InputError as error:
                show_error(error)

    def _form(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for each field of a form."""
        form: dict[str, Any] = {}
        for name in schema.get("properties", {}):
            if _is_required(schema, name) or self._asks_for_optional_parts:
                self._form_field(schema, name, form)
        return form

    def _form_field(self, schema: Mapping[str, Any], name: str, form: dict[str, Any]) -> None:
        """Ask for a field of a form until it has the declared type."""
        field = schema["properties"][name]
        form.pop(name, None)
        while text := self._field(name, _about(field), required=_is_required(schema, name)):
            try:
                form[name] = by_type(field, text, f"'{name}'", name)
                return
            except InputError as error:
                show_error(error)

    def _field(self, name: str, about: str, *, required: bool) -> str:
        """Ask for the text of one field, repeatedly if it is required."""
        note = about or ("" if required else "Enter: none")
        prompt = f"{printable(name)}{f' ({note})' if note else ''}: "
        while True:
            text = self._read(prompt).strip()
            if text or not required:
                return text
            err(f"  {name} is required (Ctrl-D leaves the question open)")

    def _read(self, prompt: str) -> str:
        """Return the text typed at the terminal after a prompt.

        Raises:
            EOFError: The user wants no further questions.
            AnswerWithdrawn: The answer is no longer needed: another user decided, or the time is
                up.
        """
        with listening(sys.stdin.fileno(), withdrawn=self._is_withdrawn) as keyboard:
            ask(prompt)
            return keyboard.line()


def _is_required(schema: Mapping[str, Any], name: str) -> bool:
    """Return whether a field of a form has to be filled in."""
    return name in schema.get("required", ()) and "default" not in schema["properties"][name]


def _about(field: Any) -> str:
    """Return the description of a field: its title, allowed values and default."""
    if not isinstance(field, Mapping):
        return ""
    parts = [str(field["title"])] if "title" in field else []
    if "enum" in field:
        parts.append(" | ".join(map(inline, field["enum"])))
    if "default" in field:
        parts.append(f"Enter: {inline(field['default'])}")
    return printable(", ".join(parts))
