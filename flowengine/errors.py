"""The hierarchy of errors: what happened, where, what to do.

Every error that a caller can receive is a `FlowEngineError`. Its message contains the problem and
its place. `hint` contains the remedy, if it is known, and `exit_code` is the exit code of the
command line (docs/cli.md).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

Surface = Literal["cli", "http", "page"]
"""Where an error is read, besides Python: the command line, the HTTP API, the server's page."""


class Hint(str):
    """A remedy that depends on where it is read. As text, it is the one in a Python program.

    Args:
        python: The remedy in a Python program.
        cli: On the command line. Default: the same.
        http: For a client of the HTTP API, which cannot run commands. None: no hint, but that of
            the command line for `--server`. Empty: nothing, as only the host has a remedy.
    """

    cli: str
    http: str | None
    page: None
    """The page has a form for each action, so it shows no hint."""

    def __new__(cls, python: str, cli: str | None = None, http: str | None = None) -> Self:
        """Return the hint."""
        hint = super().__new__(cls, python)
        hint.cli = python if cli is None else cli
        hint.http, hint.page = http, None
        return hint


def without_addresses(message: str) -> str:
    """Return a message without the memory addresses of quoted objects."""
    if " at 0x" not in message:
        return message
    import re

    return re.sub(r"(<[^<>]*) at 0x[0-9a-f]+>", r"\1>", message)


class FlowEngineError(Exception):
    """Base of all errors of the engine. Never raised itself.

    Args:
        message: The problem, and its place.
        hint: The remedy, as a sentence or a command. A traceback shows it below the message.
        plain: The message for users of a server without the right to see the quoted data.
            Default: it quotes none.
        flow: Id of the flow whose data it quotes.
        wait: Id of the wait whose data it quotes.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        plain: str | None = None,
        flow: str | None = None,
        wait: str | None = None,
    ) -> None:
        message = without_addresses(message)
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.plain = plain
        self.flow = flow
        self.wait = wait
        if hint is not None:
            self.add_note(str(hint))

    def __str__(self) -> str:
        return self.message

    @property
    def with_hint(self) -> str:
        """The message and the remedy, if there is one, in one line."""
        return self.message if self.hint is None else f"{self.message}; {self.hint}"

    def without_quotes(self) -> FlowEngineError:
        """Return the error for users without the right to see the data that it quotes."""
        return self if self.plain is None else type(self)(self.plain)

    def hint_for(self, surface: Surface) -> str | None:
        """Return the remedy in the words of the surface where it is read, or None."""
        return getattr(self.hint, surface) if isinstance(self.hint, Hint) else self.hint


class UsageError(FlowEngineError):
    """An invalid call or command line."""

    exit_code = 2


class FlowFileError(FlowEngineError):
    """A flow file has errors, so nothing was run.

    Args:
        message: The rendered report of all errors.
        diagnostics: The errors, one by one.
    """

    exit_code = 3

    def __init__(self, message: str, diagnostics: list[Any]) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics
        """`flowengine.flow.source.diagnostics.Diagnostic` objects, in file order."""


class InputError(FlowEngineError):
    """Inputs, a form, an edit or the data of a signal do not match their schema.

    Args:
        message: The mismatch, with the name of the field.
        field: The field, as a dotted path.
        hint: A matching value.
        quoting: `plain`, `flow` and `wait`, as for every error.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, field: str = "", hint: str | None = None, **quoting: str | None
    ) -> None:
        super().__init__(message, hint=hint, **quoting)
        self.field = field


class NotFound(FlowEngineError):
    """An execution, wait, step or file does not exist."""

    exit_code = 9


class Conflict(FlowEngineError):
    """The object is already decided, held by another process, or in the wrong status.

    Args:
        message: The conflict.
        standing: The current state, for example the decision that was made.
        hint: The remedy.
        quoting: `plain`, `flow` and `wait`, as for every error.
    """

    exit_code = 7

    def __init__(
        self,
        message: str,
        *,
        standing: Any = None,
        hint: str | None = None,
        **quoting: str | None,
    ) -> None:
        super().__init__(message, hint=hint, **quoting)
        self.standing = standing


class LeaseLost(Conflict):
    """Another process owns the execution now. Late writes of this process were not kept."""


class NotAllowed(FlowEngineError):
    """The user is not an assignee, is excluded, or is refused by a policy."""

    exit_code = 8


class StoreError(FlowEngineError):
    """The store cannot be read or written. Data that was committed before is kept."""

    exit_code = 10


class NoWorker(StoreError):
    """No worker of a store in Temporal answers. Earlier records are kept."""

    recorded: str | None = None
    """Id of the execution that the next worker continues, if the request is recorded."""
