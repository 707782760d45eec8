"""What a call compiles to, whatever it calls: a declared tool, a step kind, a flow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from flowengine.flow.compile.addresses import host_argument
from flowengine.flow.compile.expressions import Expressions, Typed
from flowengine.flow.compile.types import Schema
from flowengine.flow.compile.views import View
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Defaults, Retry
from flowengine.kernel.graph.compiled import Plain, Value
from flowengine.kernel.graph.values import holds_secret
from flowengine.sdk.step_kind import StepKind


class Home(NamedTuple):
    """What a declaration sees that is used in another file than its own."""

    expressions: Expressions
    view: View
    defaults: Defaults


class Hinted(NamedTuple):
    """An argument that may get an environment, because its type is a class of one."""

    classes: list[str]
    """Full names of classes."""
    required: bool
    only_named: bool = False
    """It gets one only if the step or tool names it."""


@dataclass(slots=True)
class Callee:
    """Something that a step can call, compiled."""

    kind: str
    task: dict[str, Plain]
    returns: Schema
    args: Schema | None = None
    """Of what a caller gives, with what the flow fixes; None: not known."""
    step_kind: type[StepKind] = StepKind
    """What the kind says of itself."""
    input: Typed | None = None
    """Of a kind whose input is its configuration."""
    configuration: Typed | None = None
    """Of a kind that takes arguments: what its configuration has besides constants."""
    bind: dict[str, Typed] | None = None
    key: Value | None = None
    effect: str | None = None
    default_effect: str = "once"
    on_crash: str | None = None
    meters: dict[str, Plain] | None = None
    """What an attempt uses of budgets, if it is no tool call."""
    reads: list[str] = field(default_factory=list)
    """State keys of the caller's flow that an attempt reads by reference."""
    retry: Retry | None = None
    timeout: str | None = None
    address: str | None = None
    """Where it sends requests to, with expressions."""
    preview: dict[str, Plain] | None = None
    """The function that says what a call would do: `function` and `folder`."""
    limits: dict[str, int] | None = None
    """Bounds of a call: `output`, the bytes of its result; `calls`, how many there may be."""
    identity: str = ""
    """Tells a declared tool from others, whatever names it has."""
    approval: dict[str, Typed] | None = None
    """What people are asked before it is called, but for the names and types of what is called."""
    environments: dict[str, Typed] = field(default_factory=dict)
    """What it gets, by the names it knows them by."""
    hinted: dict[str, Hinted] = field(default_factory=dict)
    """Arguments that may get an environment by their type."""
    offered: dict[str, Typed] | None = None
    """Of a tool of a server that a model was offered: `schema`, `digest`, and `tool`, its name, if
    that is known only when it is called."""
    takes_resources: bool = False
    """It takes all environments that it is given."""
    opens: dict[str, str] = field(default_factory=dict)
    """Environments that are opened for it if none is named: their kinds."""
    declared: bool = True
    """Whether the file says what it is: what a kind brings finds its environments at each use."""
    flow: Definition | None = None
    """The flow that it runs."""
    given: dict[str, Typed] = field(default_factory=dict)
    """Of a generated flow: inputs that get values from where it is declared."""
    description: str = ""
    """What it does, as far as its kind knows."""
    home: Home | None = None
    """Of a declaration of another file."""
    names_inputs: bool = False
    """It names inputs of the flow of its file."""

    @property
    def name(self) -> str:
        """How messages name it: a function by its path."""
        return self.step_kind.label(self.task) or self.kind

    @property
    def has_secret(self) -> bool:
        """Whether the flow gives it a secret."""
        values = [self.input, self.configuration, *(self.bind or {}).values()]
        return any(holds_secret(one.value) for one in values if one is not None)

    def chosen_host(self, fixed: Iterable[str] = ()) -> str | None:
        """Return the expression by which its caller decides to which server it sends requests.

        Args:
            fixed: Arguments that are decided, besides those that the flow fixes.
        """
        if self.address is None:
            return None
        return host_argument(self.address, self.args, {*(self.bind or {}), *fixed})

    def hide(self, names: Iterable[str]) -> None:
        """Take arguments that get environments out of what a caller gives."""
        schema = self.args
        names = set(names)
        if schema is None or not names:
            return
        given = schema.get("properties", {})
        shown = {name: one for name, one in given.items() if name not in names}
        required = [name for name in schema.get("required", ()) if name not in names]
        self.args = {**schema, "properties": shown, "required": required}
        if "schema" in self.task:
            self.task = {**self.task, "schema": self.args}
