"""One command at work: the engine it uses, what it shows meanwhile, how it ends."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

from flowengine.cli.ending import Ending
from flowengine.cli.output import (
    as_json,
    clean,
    duration,
    err,
    flush,
    is_terminal,
    out,
    out_json,
    paint,
)
from flowengine.cli.progress import Progress
from flowengine.engines.attempts.printed import heard
from flowengine.engines.engine import Engine
from flowengine.errors import NotFound
from flowengine.store_folder import find_store

if TYPE_CHECKING:
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.results import Result

Beside = Callable[[Progress], AbstractContextManager[None]]
EXIT_CODES = {
    "succeeded": 0,
    "failed": 1,
    "waiting": 4,
    "stalled": 5,
    "cancelled": 6,
    "running": 4,
    "interrupted": 4,
}


class Session:
    """The engine of one command line, and how its user is told.

    Args:
        make: Path of the flow that it is about: if there is no store, it is made once this flow
            has been found right. None: there has to be a store.

    Attributes:
        engine: The engine.
        arguments: Of the command line.
        named: Executions that were named to the user before something was said of them.
    """

    def __init__(self, arguments: Namespace, *, make: str | None = None) -> None:
        self.arguments = arguments
        self.named: set[str] = set()
        store, by_name = find_store(arguments.store or "")
        if not os.path.exists(store):
            if make is None:
                above = "" if by_name else ", nor in a folder above"
                raise NoStore(
                    f"there is no store at {store}{above}",
                    hint="the first run creates it; --store PATH names another one",
                )
            from flowengine.engines.flows import load

            load(make)  # what cannot run leaves nothing behind
        self.engine = Engine(
            store if by_name else "",
            durability=arguments.durability,
            workdir=getattr(arguments, "workdir", None),
            via="cli",
            stay=60.0 if getattr(arguments, "stay", None) is None else arguments.stay,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if Ending.at_once:
            self.engine.leave()
        else:
            self.engine.close()

    def command(self, *words: str) -> str:
        """Return a command line that works when it is pasted here."""
        import shlex

        store = ["--store", self.arguments.store] if self.arguments.store else []
        return shlex.join(["flowengine", *store, *words])

    def make_pasted(self, view: Any) -> None:
        """Replace the command line in a view, if it has one, by one that works when pasted here."""
        if view.get("command"):
            view["command"] = self.pasted(view["command"])

    def pasted(self, command: str) -> str:
        """Return a command line of the engine's own so that it works when it is pasted here."""
        return command.replace("flowengine", self.command(), 1)

    @property
    def place(self) -> str:
        """The folder of the store, for messages."""
        return os.path.dirname(self.engine.store.location)

    def short(self, execution: str) -> str:
        """Return the beginning of an execution's id that is only its own."""
        return self.engine.store.short_execution(execution)

    def short_wait(self, wait: str) -> str:
        """Return the beginning of a wait's id that is only its own."""
        return self.engine.store.short_wait(wait)

    def flow_of(self, execution: str) -> LoadedFlow:
        """Return the flow that an execution runs, as the store keeps it.

        Args:
            execution: Full id.
        """
        from flowengine.engines.flows import LoadedFlow
        from flowengine.journal.format import unpack

        store = self.engine.store
        hash = store.execution(execution).hash
        return LoadedFlow(unpack(store.get_flow(hash)), hash)

    # Driving

    def drive(self, call: Callable[[], Result | None], *, ask: bool = False) -> int:
        """Drive an execution and show it; ask what it waits for, if a person is there.

        Args:
            call: Drives it, and returns how it stands; None: nobody drives it here.
            ask: Ask for approvals, if this is a terminal.

        Returns:
            The exit code.
        """
        if ask and not self.arguments.json and is_terminal(sys.stdin) and is_terminal(sys.stderr):
            from flowengine.cli.asking import drive_and_ask

            result = drive_and_ask(self, call)
        else:
            result, _ = self.follow(call)
        return 0 if result is None else self.finish(result)

    def follow(
        self, call: Callable[[], Result | None], beside: Beside | None = None
    ) -> tuple[Result | None, Progress]:
        """Drive and show progress.

        Args:
            call: Drives.
            beside: What goes on at the same time.

        Returns:
            What the call returned, and what was seen.

        Raises:
            Interrupted: The user has stopped it; said where it is saved.
        """
        progress = self._progress()
        end = self.engine.subscribe(progress, output=self.arguments.verbose)
        try:
            with heard(), progress, nullcontext() if beside is None else beside(progress):
                result = call()
        except KeyboardInterrupt:
            if progress.execution is None:
                raise Interrupted("nothing was run") from None
            raise self.interrupted(progress.execution) from None
        finally:
            end()
        return result, progress

    def interrupted(self, execution: str) -> Interrupted:
        """Return the error that says that an execution is stopped, and where it is saved."""
        short = self.short(execution)
        return Interrupted(f"saved as {short}; to resume: {self.command('resume', short)}")

    def _progress(self) -> Progress:
        if not self.arguments.quiet and is_terminal(sys.stderr):
            from flowengine.cli.live import LiveProgress

            return LiveProgress(self)
        return Progress(self)

    def finish(self, result: Result) -> int:
        """Say how an execution stands.

        Args:
            result: How it stands.

        Returns:
            The exit code.
        """
        code = EXIT_CODES[result.status]
        if self.arguments.json:
            out_json(self.as_object(result))
            return code
        if getattr(self.arguments, "events", False):
            return code
        if result.ended:
            self._say_end(result)
        elif not self.arguments.quiet:
            from flowengine.cli.waiting import say_waits

            say_waits(self, result)
        return code

    def _say_end(self, result: Result) -> None:
        from flowengine.cli.yaml_text import entry

        if not self.arguments.quiet:
            record = self.engine.store.execution(result.execution)
            took = duration((record.ended_at or record.created_at) - record.created_at)
            err(f"{paint(result.status, _colour(result.status))} in {took}")
        if result.error is not None:
            self._say_error(result)
        for name, value in (result.outputs or {}).items():
            out(entry(name, value))

    def _say_error(self, result: Result) -> None:
        error: Any = result.error
        if result.status == "cancelled":
            if error["message"]:
                err(f"  reason      {clean(error['message'])}")
            return
        from flowengine.cli.evidence import (
            LINES,
            again_lines,
            evidence_lines,
            evidence_of,
            failed_at,
        )

        place = f" at {error['step']}" if error.get("step") else ""
        told = clean(f"{error['type']}{place}: {error['message']}")
        err(f"{paint('error:', 'red')} {told}")
        evidence = evidence_of(self, result.execution, error)
        for line in evidence_lines(evidence, most=LINES):
            err(line)
        if result.status == "failed":
            short = self.short(result.execution)
            words = ["show", short, *(["--step", failed_at(error)] if evidence else [])]
            err(f"  look        {self.command(*words)}")
            for line in again_lines(self.as_object(result)):
                err(f"  {line}")

    def as_object(self, result: Result) -> dict[str, Any]:
        """Return a result as the documented JSON object."""
        found = {key: value for key, value in result._asdict().items() if key != "due"}
        if result.status == "failed":
            from flowengine.engines.attempts.failures import again, not_undone

            found["command"] = self.pasted(again(result.error, self.short(result.execution)))
            if left := not_undone(result.error):
                found["not_undone"] = left
        return found

    def tell_event(self, entry: dict[str, Any]) -> None:
        """Print one entry of the journal as a line of JSON."""
        out(as_json(entry))
        flush()


class NoStore(NotFound):
    """There is no store yet, so there is nothing in it."""


class Interrupted(KeyboardInterrupt):
    """The user has stopped the process; says what is saved, and where."""


def _colour(status: str) -> str | None:
    from flowengine.cli.output import STATUS_COLOURS

    return STATUS_COLOURS.get(status)
