"""The compiled form of a call's target: a declared tool, a step kind, or a flow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flowengine.flow.compile.expressions import Expressions, TypedValue, host_argument
from flowengine.flow.compile.types import Schema, VisibleNames
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Defaults, Retry
from flowengine.kernel.graph.compiled import Plain, Value, holds_secret
from flowengine.kernel.graph.specs import BackgroundSpec
from flowengine.sdk.steps.step_kind import StepKind
from flowengine.sdk.values.argument_schemas import without_arguments


class Home(NamedTuple):
    """The scope of a declaration that is used in another file than its own."""

    expressions: Expressions
    view: VisibleNames
    defaults: Defaults


class Hinted(NamedTuple):
    """An argument that may receive an environment, because its type is the class of one."""

    classes: list[str]
    """Full names of classes."""
    required: bool
    only_named: bool = False
    """Whether it receives one only if the step or tool names it."""


@dataclass(slots=True)
class Callee:
    """A target that a step can call, compiled."""

    kind: str
    task: dict[str, Plain]
    returns: Schema
    args: Schema | None = None
    """Schema of a caller's arguments, including fixed ones. None if it is unknown."""
    step_kind: type[StepKind] = StepKind
    """The step kind, with its properties."""
    input: TypedValue | None = None
    """The input of a kind whose input is its configuration."""
    configuration: TypedValue | None = None
    """For a kind that takes arguments: its configuration except for constants."""
    bind: dict[str, TypedValue] | None = None
    key: Value | None = None
    effect: str | None = None
    default_effect: str = "once"
    on_crash: str | None = None
    needs: Sequence[str] = ()
    meters: dict[str, Plain] | None = None
    """The budget usage of an attempt, if it is not a tool call."""
    reads: list[str] = field(default_factory=list)
    """State keys of the caller's flow that an attempt reads by reference."""
    retry: Retry | None = None
    timeout: str | None = None
    address: str | None = None
    """The address of its requests, with expressions."""
    preview: dict[str, Plain] | None = None
    """The function that returns the effect of a call: `function` and `folder`."""
    limits: dict[str, int] | None = None
    """Limits on calls: `output`, the bytes of a result, and `calls`, their number."""
    identity: str = ""
    """The identity of a declared tool under all its names."""
    approval: dict[str, TypedValue] | None = None
    """The approval required before it is called, without the names and types of the target."""
    environments: dict[str, TypedValue] = field(default_factory=dict)
    """Its environments, by the names that it uses for them."""
    hinted: dict[str, Hinted] = field(default_factory=dict)
    """Arguments that may receive an environment by their type."""
    offered: dict[str, TypedValue] | None = None
    """For an offered tool of a server: `schema`, `digest`, and `tool`, its name, if it is known
    only at the call."""
    takes_resources: bool = False
    """Whether it receives all environments of the step."""
    opens: dict[str, str] = field(default_factory=dict)
    """Environments that are opened for it if none is named: their kinds."""
    declared: bool = True
    """Whether it is declared in the file. Tools of a kind find their environments at each use."""
    flow: Definition | None = None
    """The flow that it runs."""
    background: BackgroundSpec | None = None
    """The flow runs as a separate execution, within these bounds."""
    given: dict[str, TypedValue] = field(default_factory=dict)
    """For a generated flow: inputs with values from the place of its declaration."""
    description: str = ""
    """Its description, as far as its kind knows it."""
    home: Home | None = None
    """The scope of a declaration in another file."""
    names_inputs: bool = False
    """Whether it names inputs of the flow of its file."""

    @property
    def name(self) -> str:
        """Its name in messages. A function is named by its path."""
        return self.step_kind.label(self.task) or self.kind

    @property
    def has_secret(self) -> bool:
        """Whether the flow passes a secret to it."""
        values = [self.input, self.configuration, *(self.bind or {}).values()]
        return any(holds_secret(value.value) for value in values if value is not None)

    def chosen_host(self, fixed: Iterable[str] = ()) -> str | None:
        """Return the expression by which its caller determines the server of its requests.

        Args:
            fixed: Arguments with fixed values, besides those that the flow fixes.
        """
        if self.address is None:
            return None
        return host_argument(self.address, self.args, {*(self.bind or {}), *fixed})

    def hide(self, names: Iterable[str]) -> None:
        """Remove arguments that receive environments from the caller's arguments."""
        schema = self.args
        names = set(names)
        if schema is None or not names:
            return
        self.args = without_arguments(schema, names)
        if "schema" in self.task:
            self.task = {**self.task, "schema": self.args}
