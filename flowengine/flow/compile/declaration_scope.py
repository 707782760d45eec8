"""What the declarations of a file see, as one flow uses them: its values, and other files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.scopes import base_of, state_of
from flowengine.flow.compile.types import Schema
from flowengine.flow.compile.views import View
from flowengine.flow.loading.files import Definition, File, Files
from flowengine.flow.models import Loc, Part
from flowengine.flow.models.types import Effect


class OtherFlows(Protocol):
    """What the compiler of one flow asks about the others, and about their files."""

    files: Files
    first: File
    """The file that is compiled."""
    read: dict[str, None]
    """Other files that were read, such as Python modules."""

    def find(self, file: File, name: str, loc: Loc) -> Definition | None:
        """Return the flow that a name means; None if that was reported."""

    def outputs(self, definition: Definition) -> Schema:
        """Return the type of what a flow gives."""

    def uncertain_outputs(self, definition: Definition) -> list[str]:
        """Return which outputs of a flow may be null."""

    def effect(self, definition: Definition) -> Effect:
        """Return what a crash in a flow may repeat."""

    def generate(self, kind: str, config: Any, file: File, loc: Loc) -> Definition | None:
        """Return the flow that a step kind generates; None if what is wrong was reported."""

    def is_generating(self, kind: str, config: Any, file: File) -> bool:
        """Return whether the flow of a use of a step kind is being generated right now."""

    def secret(self, file: File, name: str) -> str:
        """Return by which name the compiled flow has a secret of a file."""


class DeclarationScope:
    """The declarations of a file, as one flow uses them.

    Args:
        file: The file.
        user: The flow that uses them, of this file or another.
        expressions: Compiles what stands in declarations.
        others: The other flows and files.
    """

    def __init__(
        self, file: File, user: Definition, expressions: Expressions, others: OtherFlows
    ) -> None:
        self.file = file
        self.user = user
        self.model = file.model
        self.expressions = expressions
        self.report = file.report
        self.others = others
        self.view = View(base_of(file.flow))
        """What declarations see, but for `args`."""
        self._beside: dict[File, DeclarationScope] = {}

    def of_file(self, file: File) -> DeclarationScope:
        """Return the declarations of a file, for the same flow."""
        if file is self.file:
            return self
        if file not in self._beside:
            secrets = {name: self.others.secret(file, name) for name in file.model.secrets}
            expressions = Expressions(file.report, secrets, self.expressions, True)
            self._beside[file] = DeclarationScope(file, self.user, expressions, self.others)
        return self._beside[file]

    @property
    def own_view(self) -> View:
        """What a value sees that is declared for a step of the flow: in its own flow, state too."""
        if self.user is not self.file.flow:
            return self.view
        return self.view.having({"state": state_of(self.user)})

    def sees_inputs_of(self, file: File) -> bool:
        """Return whether the flow that uses the declarations has the inputs of a file's own flow.

        A flow that was generated from a file's declarations is handed those that it needs.
        """
        user = self.user
        return user is file.flow or (user.generated is not None and user.file is file)

    @contextmanager
    def noting_inputs(self) -> Iterator[set[str]]:
        """Give the inputs that expressions compiled meanwhile name, once it is left."""
        used = self.expressions.used
        before, noted = used["inputs"], set[str]()
        used["inputs"] = noted
        yield noted
        before |= noted
        used["inputs"] = before

    def refuse_inputs(self, file: File, model: Part, name: str, loc: Loc) -> None:
        """Report that a declaration names inputs of a flow that is not the one that uses it.

        Args:
            file: The file of the declaration.
            model: The declaration.
            name: As it is used.
        """
        message = f"{name!r} uses inputs of the flow of its own file, which is not this one"
        hint = "give it arguments instead: declare 'args', and pass them here"
        place = file.report.source.position(model.loc)
        here = self.report.source.position(loc)
        self.report.diagnostics.error(
            "E301", message, here, hint=hint, related=[(place, "it is declared here")]
        )
