"""The scope of a file's declarations when a flow uses them: its values, and other files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.scopes import base_of, state_of
from flowengine.flow.compile.types import Schema
from flowengine.flow.compile.views import VisibleNames
from flowengine.flow.loading.files import Definition, FlowFile, FlowFiles
from flowengine.flow.models import Loc, Part
from flowengine.flow.models.actions import Asking
from flowengine.flow.models.types import Effect


class OtherFlows(Protocol):
    """The interface through which the compiler of one flow queries other flows and files."""

    files: FlowFiles
    first: FlowFile
    """The file that is compiled."""
    read: dict[str, None]
    """Other files that were read, such as Python modules."""

    def find(self, file: FlowFile, name: str, loc: Loc) -> Definition | None:
        """Return the flow with a name, or None if it was reported."""

    def outputs(self, definition: Definition) -> Schema:
        """Return the output type of a flow."""

    def uncertain_outputs(self, definition: Definition) -> list[str]:
        """Return which outputs of a flow may be null."""

    def effect(self, definition: Definition) -> Effect:
        """Return the effect of a flow after a crash."""

    def generate(self, kind: str, config: Any, file: FlowFile, loc: Loc) -> Definition | None:
        """Return the flow that a step kind generates, or None if errors were reported."""

    def is_generating(self, kind: str, config: Any, file: FlowFile) -> bool:
        """Return whether the flow for a use of a step kind is being generated at the moment."""

    def notification(
        self, user: Definition, file: FlowFile, tool: str, loc: Loc
    ) -> Definition | None:
        """Return the flow that sends notifications with a tool, or None if errors were reported.

        Args:
            user: The flow with the approval, which is compiled together with it.
            file: The file of the approval.
            tool: The name of the tool there.
            loc: Its place.
        """

    def secret(self, file: FlowFile, name: str) -> str:
        """Return the name of a file's secret in the compiled flow."""


class DeclarationScope:
    """The declarations of a file, as one flow uses them.

    Args:
        file: The file.
        user: The flow that uses them, of this file or another.
        expressions: Compiles the values in declarations.
        others: The other flows and files.
    """

    def __init__(
        self, file: FlowFile, user: Definition, expressions: Expressions, others: OtherFlows
    ) -> None:
        self.file = file
        self.user = user
        self.model = file.model
        self.expressions = expressions
        self.report = file.report
        self.others = others
        self.view = VisibleNames(base_of(file.flow))
        """The names that declarations see, except for `args`."""
        self._beside: dict[FlowFile, DeclarationScope] = {}

    def of_file(self, file: FlowFile) -> DeclarationScope:
        """Return the declarations of a file, for the same flow."""
        if file is self.file:
            return self
        if file not in self._beside:
            secrets = {name: self.others.secret(file, name) for name in file.model.secrets}
            expressions = Expressions(file.report, secrets, self.expressions, True)
            self._beside[file] = DeclarationScope(file, self.user, expressions, self.others)
        return self._beside[file]

    @property
    def own_view(self) -> VisibleNames:
        """Return the names for a value declared for a step of the flow.

        In its own flow, state is included.
        """
        if self.user is not self.file.flow:
            return self.view
        return self.view.having({"state": state_of(self.user)})

    def sees_inputs_of(self, file: FlowFile) -> bool:
        """Return whether the flow that uses the declarations has the inputs of a file's flow.

        A flow that was generated from a file's declarations receives the inputs that it needs.
        """
        user = self.user
        return user is file.flow or (user.generated is not None and user.file is file)

    def notifications(self, given: Asking) -> list[str]:
        """Return the ids of the flows that send the notifications of an approval."""
        sections = [
            self.others.notification(self.user, self.file, tool, (*given.loc, "notify", index))
            for index, tool in enumerate(given.notify)
        ]
        return [flow.id for flow in sections if flow is not None]

    @contextmanager
    def noting_inputs(self) -> Iterator[set[str]]:
        """Collect the inputs that expressions compiled in the block name."""
        used = self.expressions.used
        before, noted = used["inputs"], set[str]()
        used["inputs"] = noted
        yield noted
        before |= noted
        used["inputs"] = before

    def refuse_inputs(self, file: FlowFile, model: Part, name: str, loc: Loc) -> None:
        """Report that a declaration names inputs of a flow other than the one that uses it.

        Args:
            file: The file of the declaration.
            model: The declaration.
            name: The name under which it is used.
            loc: Place of the use.
        """
        message = f"{name!r} uses inputs of the flow in its own file, which is not this one"
        hint = "give it arguments instead: declare 'args', and pass them here"
        place = file.report.source.position(model.loc)
        here = self.report.source.position(loc)
        self.report.diagnostics.error(
            "E301", message, here, hint=hint, related=[(place, "it is declared here")]
        )
