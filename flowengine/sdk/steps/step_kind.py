"""`StepKind`: the implementation of an action key, and its properties for the checker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, Protocol, TypedDict

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.steps.context import StepContext
from flowengine.sdk.steps.generated_flows import Declarations, GeneratedFlow
from flowengine.sdk.steps.previews import PreviewContext
from flowengine.sdk.steps.rehearsals import Rehearsal

Effect = Literal["pure", "idempotent", "once"]
"""How a call may be repeated: freely, with the same idempotency key, or never."""
AsText = Callable[[object, int], str | None]
"""Result of a call and maximum number of characters → text for the model."""
KindPlace = Literal["step", "tool", "generated"]


class SignatureError(Exception):
    """The target of a step, or its signature, cannot be read.

    Args:
        message: The problem.
        hint: The remedy.
        path: The module's file, if it was found.
        line: Line in it.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = path
        self.line = line


class CallSignature(NamedTuple):
    """The target of a call with arguments, known from the flow file before anything runs."""

    args: dict[str, Plain] | None = None
    """JSON Schema of the arguments, an object. None means unknown."""
    returns: dict[str, Plain] | None = None
    """JSON Schema of the result. None means that `output_of` returns it."""
    task: Mapping[str, Plain] = {}
    """Data that `execute` needs in `task` besides the constants. It is stored in the compiled flow,
    so it must be small and the same at each compilation."""
    environments: Mapping[str, Sequence[str]] = {}
    """Arguments that take an environment → full names of the accepted classes. The checker looks
    for an environment that fits, so callers need not name it."""
    files: Sequence[str] = ()
    """Files that the signature was read from. A stored flow is compiled again when one of them
    changes."""
    description: str = ""
    """Description of the target, for its callers."""
    takes_resources: bool = False
    """Whether it receives all environments of the step, under any name."""
    optional_environments: Mapping[str, Sequence[str]] = {}
    """The same as `environments`, for environments that are passed only if the step or tool names
    them."""
    opens: Mapping[str, str] = {}
    """Environments that are opened for it if none is named: name → kind, as in `Tool`."""


class Meter(NamedTuple):
    """How the usage of a budget is read from an attempt."""

    used: Sequence[str] = ()
    """Paths into the output, such as `usage.input_tokens`, whose amounts are added up. For a
    failed attempt they lead into the `data` of its error. An error without these paths counts as
    no usage."""
    reserved: str | None = None
    """Path into the input of the maximum usage. This amount is charged if the real usage is
    unknown, as after a crash."""


class Need(NamedTuple):
    """The amount of a meter that an attempt may use, computed before it begins."""

    least: float
    """It does not begin if less than this remains."""
    most: float
    """It never uses more than this."""
    beyond: float = 0
    """How far it may exceed the remaining amount, because `most` may be too high by this much."""


class Synonym(NamedTuple):
    """A term from other systems for a key of a configuration."""

    words: str
    """The term, with blanks between its words."""
    hint: str
    """The remedy, such as `write 'body: {…}'`."""
    key: str | None = None
    """The key that is meant."""


class Tool(TypedDict):
    """A tool that a step kind provides, such as `call: std.print`."""

    description: str
    args: dict[str, Plain]
    """JSON Schema of the arguments."""
    returns: dict[str, Plain]
    """JSON Schema of the result."""
    effect: Effect
    environment: NotRequired[str]
    """Kind of environment that it works in, found in `context.resources` under the name of the
    kind. It is the environment of that kind that the step or tool names, else the one with that
    name and kind in the flow file, else an unconfigured one that is opened once for an
    execution."""
    environments: NotRequired[Mapping[str, Sequence[str]]]
    """Environments that it works in: name → full names of classes, as in `CallSignature`. Each is
    the only fitting one in the flow file, or the one that the declaration of the tool names. They
    are never opened without being declared."""
    apart: NotRequired[bool]
    """Whether `std.*` leaves it out because it can reach arbitrary destinations. An agent must name
    at least the beginning of its name, as in `std.browser_*`."""
    optional: NotRequired[bool]
    """Whether it also works without its `environments`. It then receives only those that a
    declaration of the tool names."""


class BuiltFlow(Protocol):
    """A flow built in Python, to which declarations are added."""

    head: dict[str, Any]
    """The top-level sections of its file: section → name → declaration."""
    folder: str
    """The directory of its file, if it were written to one."""

    def declare(self, section: str, name: str, spec: Any) -> str:
        """Add a declaration, and return its name."""

    def reference(self, function: Any) -> str:
        """Return the name by which another process finds a function.

        Raises:
            UsageError: No other process could find it.
        """


class StepKind:
    """The implementation of an action key of a flow file.

    Each process has one object, and attempts may overlap. A class in a package is registered by an
    entry point in the group `flowengine.nodes`. The entry point's name is the action key.
    """

    # For the checker and the compiler. A class is imported for them only where a flow uses it.

    places: ClassVar[tuple[KindPlace, ...]] = ("step", "tool")
    """Where its name can be used in a flow file: as the action of a step, as the kind of a tool, or
    only in generated flows. A kind without a place is used by the `tools` that it provides."""
    effect: ClassVar[Effect] = "once"
    """The effect of a step or tool that declares none. It decides which attempts may be repeated
    after a crash."""
    idempotent_if: ClassVar[str] = ""
    """Condition for `effect: idempotent`, as a clause that ends the hint of an error."""
    constants: ClassVar[Collection[str]] = ()
    """Keys of the configuration that hold no expressions. They are in `task`, not in `input`."""
    constants_hint: ClassVar[str | None] = None
    """Hint for an expression in a constant."""
    secrets: ClassVar[Collection[str]] = ()
    """Keys of the configuration that may name secrets. In other keys they are refused."""
    synonyms: ClassVar[Sequence[Synonym]] = ()
    """Terms from other systems, for hints about unknown keys and, for kinds that generate flows,
    unknown arguments."""
    meters: ClassVar[Mapping[str, Meter] | None] = None
    """Budget usage of an attempt instead of one of `tool_calls`: `tokens`, `cost_usd` (US dollars),
    or nothing. None means that it is a tool call."""
    in_environment: ClassVar[bool] = False
    """Whether it works in an environment chosen by the flow: by `in` of the step or of the
    configuration, by `defaults.in`, else `host`. `task["in"]` contains the name, and
    `context.environment` opens it."""
    command: ClassVar[str | None] = None
    """The key for a program and its arguments. The checker warns of values in the text of a
    program, and refuses a program on the host that is named by a value."""
    takes_arguments: ClassVar[bool] = False
    """Whether it calls something with arguments: `with` of a step, `args` and `bind` of a tool.
    Then `signature` returns the target, and `input` is `{"args": …}`, with `bind` if the flow fixes
    arguments and `configuration` if the configuration has more than constants. An environment with
    the name of an argument replaces that argument and is found in `context.resources`."""

    object_remedy: ClassVar[str] = ""
    """How to receive an object of the program whose name is that of an argument, for an error. `{}`
    stands for the name. Empty: objects never replace arguments."""
    may_start_agents: ClassVar[bool] = False
    """Whether its code may run agents in this process (`MetaChain`). The rules of the flow then
    also apply to the calls of these agents."""
    foreign: ClassVar[bool] = False
    """Whether its results and errors may be written by third parties. As a tool of an agent, its
    text is shown to the model in a marked block, as text that must not be followed as
    instructions."""
    outcomes: ClassVar[Sequence[str]] = ("ok",)
    """Outcomes of a step that runs a generated flow, except for errors."""
    raises: ClassVar[Mapping[str, str]] = {}
    """Its other outcomes → the errors that they raise unless `next` routes them."""

    session: ClassVar[str | None] = None
    """A kind of environment. A tool of this step kind is then a server of tools, called as
    `name.tool`. The value of its key is the configuration of such an environment, which is opened
    once for an execution. Further keys are `include` and `exclude`, names or globs of the tools
    that a flow may call, and `in`, a declared environment to use instead. `task["server"]` names
    the session in `context.resources`, and `task["tool"]` the tool. Agents are offered the result
    of the session's `async_offers()`, a list of `OfferedTool`. If one of them calls a tool,
    `input["offered"]` contains `tool`, its name, and the `digest` of the offer."""

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the value of the action key. Default: any map.

        `x-main` names the property that a bare value stands for, such as `script` in `run: make
        test`.
        """
        return {"type": "object"}

    @classmethod
    def synonym(cls, word: str) -> Synonym | None:
        """Return the synonym for a term from other systems.

        Args:
            word: The term used in place of a key.
        """
        return next((synonym for synonym in cls.synonyms if word in synonym.words.split()), None)

    @classmethod
    def output(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the output. Default: unknown."""
        return {}

    @classmethod
    def effect_of(cls, configuration: Mapping[str, Plain]) -> Effect:
        """Return the `effect` of a step or tool with a configuration. Default: that of the kind.

        Args:
            configuration: As written in the file, in long form. Values may be expressions.
        """
        return cls.effect

    @classmethod
    def foreign_of(cls, task: Mapping[str, Plain], effect: str) -> bool:
        """Return `foreign` for the constants and effect of a step. Default: that of the kind.

        Args:
            task: The constants.
            effect: The effect that the flow declares, or that of the kind.
        """
        return cls.foreign

    @classmethod
    def reads(cls, configuration: Mapping[str, Plain]) -> Collection[str]:
        """Return the state keys that `execute` receives in `context.state`. Default: none.

        They are passed by reference, so their size does not affect the cost of an attempt. The flow
        that contains the step has to declare them.

        Args:
            configuration: As written in the file, in long form. Values may be expressions.
        """
        return ()

    @classmethod
    def output_of(cls, configuration: Mapping[str, Plain]) -> dict[str, Plain]:
        """Return the JSON Schema of the output for a configuration. Default: that of the kind.

        Args:
            configuration: As written in the file, in long form. Values may be expressions.
        """
        return cls.output()

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the target of a call. Used only for kinds that `takes_arguments`.

        This must not execute code or use the network: a flow is checked offline, and before it is
        trusted. `flowengine.sdk.python` reads Python functions.

        Args:
            configuration: As written in the file, in long form.
            folder: Directory of the flow file, absolute.

        Returns:
            Default: arguments and result are unknown.

        Raises:
            SignatureError: The target does not exist, or cannot be called with named arguments.
        """
        return CallSignature()

    @classmethod
    def declared(cls, given: object, flow: BuiltFlow) -> object:
        """Return the file form of a Python object in a flow built in Python.

        Args:
            given: The value given for the kind's key, if it is not plain data.
            flow: Receives the declarations that the object needs.

        Returns:
            A name, or a configuration. Default: the object itself.
        """
        return given

    @classmethod
    def generate(
        cls, configuration: Mapping[str, Plain], declarations: Declarations
    ) -> GeneratedFlow | None:
        """Return a flow that a use of this kind runs. Default: None, `execute` does the work.

        A kind that generates flows `takes_arguments`: they are inputs of the flow. This must not
        execute code or use the network, as in `signature`.

        Args:
            configuration: As written in the file, in long form.
            declarations: The declarations of the file.

        Returns:
            The flow, or None after an error was reported to `declarations`.
        """
        return None

    async def needs(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Mapping[str, Need]:
        """Return the amounts that an attempt may use of its budgets, before it begins.

        Called if a budget limits one of the kind's `meters`. The attempt then receives
        `context.granted` and must not exceed it. It does not begin if less than `least` remains.
        This must not use or change anything.

        Args:
            context: The attempt.
            task: As for `execute`.
            input: As for `execute`.

        Returns:
            Meter → need.

        Raises:
            StepError: The attempt fails.
        """
        raise NotImplementedError

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        """Return the text after the name of the kind in a picture of the flow. Default: nothing.

        Args:
            task: The constant part of a compiled step.
        """
        return ""

    @classmethod
    def address(cls, configuration: Mapping[str, Plain]) -> str | None:
        """Return the address of a request, with its expressions, or None if there is none.

        A model must not choose the server that receives a secret, or one that only this machine can
        reach.

        Args:
            configuration: The value of the kind's key, in long form.
        """
        return None

    @classmethod
    def names(cls, task: Mapping[str, Plain]) -> list[str]:
        """Return names of a task's target that no flow chooses, such as a function's path.

        Rules about calls recognize a declared tool by these names as well as by its own name.
        Default: the label, if the kind can be a step.

        Args:
            task: The constant part of a compiled step.
        """
        label = cls.label(task)
        return [label] if label and "step" in cls.places else []

    @classmethod
    def tools(cls) -> dict[str, Tool]:
        """Return tools that need no declaration, called as `kind.tool`. Default: none."""
        return {}

    def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Awaitable[Plain]:
        """Do the work of one attempt, as a coroutine.

        Cancellation of the awaiting task withdraws the attempt: end everything that was started,
        then re-raise the cancellation.

        Args:
            context: The attempt.
            task: The part of the step that the flow fixes: the `constants`, or the `task` of the
                signature, and `in` for a kind that works in an environment.
            input: The remaining configuration of the action key, evaluated, or the arguments.
                Secrets are text here.

        Returns:
            The output: plain data (JSON and bytes).

        Raises:
            NotImplementedError: The kind does not implement it.
        """
        raise NotImplementedError

    def adapt(
        self, context: StepContext, task: Mapping[str, Plain], result: object, text: AsText
    ) -> Plain:
        """Convert the result of a call in a flow of this kind to the output of its step.

        Args:
            context: The attempt.
            task: The `adapter` of the step's mark.
            result: The result of the call: any value, plain data or not.
            text: Returns the `text_for_model` of the called kind.

        Returns:
            Plain data.
        """
        raise NotImplementedError

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return the output of a tool call as text for the model that made it.

        A flow uses the output as data. A model reads text more reliably than JSON with escaped line
        breaks and quotes, so a kind whose output contains text formats it here.

        Args:
            task: As for `execute`.
            input: As for `execute`.
            output: The result of `execute`, with secrets masked. In a test case it is the value in
                the case, which may have any form. If this raises an error, the output is shown as
                JSON.
            room: Characters that the model is shown. The middle of a longer text is left out.

        Returns:
            The text, or None (the default) to show the output as JSON.
        """
        return None

    def rehearse(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Rehearsal | None:
        """Return the course of an attempt in a test case, where nothing outside is called.

        Args:
            context: The attempt: `state`, `fallback`, `address`, `execution.id` and `.workdir`.
            task: As for `execute`.
            input: As for `execute`, with the names of secrets.

        Returns:
            Default: None, the case contains the output.

        Raises:
            StepError: The attempt fails before anything is requested.
        """
        return None

    def request(
        self,
        context: StepContext,
        task: Mapping[str, Plain],
        input: Mapping[str, Plain],
        output: Plain,
    ) -> Mapping[str, Plain] | None:
        """Return the request of an attempt to a model, for users.

        Args:
            context: The attempt, as for `rehearse`.
            task: As for `execute`.
            input: As for `execute`, without secrets.
            output: The output of the attempt. None: it has none.

        Returns:
            Default: None, it sends nothing to a model.
        """
        return None

    @classmethod
    def summary(cls, kind: str, output: Plain) -> str | None:
        """Return a one-line summary of the output of a step in a flow of this kind, for users.

        Args:
            kind: The step kind of the step.
            output: Output of a step whose mark requests it, possibly of an earlier version of the
                kind.

        Returns:
            Text, not yet sanitized for a terminal, or None to show the output unchanged.
        """
        return None

    @classmethod
    def failure_of(cls, kind: str, output: Plain) -> str | None:
        """Return why a call has failed whose step succeeded, in one line, or None if it has not.

        A model receives failures of its programs, such as an exit code, as results.

        Args:
            kind: The step kind of the call.
            output: As for `tell`.
        """
        return None

    @classmethod
    def ahead(cls, task: Mapping[str, Plain], labels: Mapping[str, str]) -> None:
        """Load slow dependencies of a step in advance. Default: nothing.

        Called for steps of generated flows with the mark `ahead`, on a separate thread, when an
        execution begins or continues inside such a flow. The step may never be reached, so this
        must have no effect outside of this process.

        Args:
            task: The constant part of the step's configuration.
            labels: Labels of the execution.
        """

    def source(self, task: Mapping[str, Plain]) -> str | None:
        """Return the source that `execute` would run now, in this process. Default: none.

        An approval of a call covers exactly this source. If the source has changed when the call is
        about to start, the approvers are asked again, with the difference. This must not execute
        code.

        Args:
            task: The constant part of the step's configuration.

        Returns:
            For example the source of a module, or None if there is none or it cannot be read.
        """
        return None

    @classmethod
    def has_preview(cls, task: Mapping[str, Plain]) -> bool:
        """Return whether `preview` may return something. Default: whether the kind overrides it.

        Args:
            task: The constant part of the step's configuration.
        """
        return cls.preview is not StepKind.preview

    def preview(
        self, task: Mapping[str, Plain], args: dict[str, Plain], context: PreviewContext
    ) -> str | None:
        """Return the effect of a call as text for its approvers. Default: none.

        Called on a thread while the approval is open. This must not change anything. A preview that
        takes longer than two seconds is abandoned.

        Args:
            task: The constant part of the step's configuration.
            args: The arguments, including those that the flow fixes. Secrets are `***`.
            context: Data available to the preview.

        Returns:
            Text of at most 20,000 characters, such as a diff, or None if there is nothing to show.
        """
        return None

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether `execute` uses `context.resources`. It may be slow. Default: no.

        Such a step receives the environments that its execution was given.

        Args:
            task: The constant part of the step's configuration.
        """
        return False

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return a plain function that does the work of `execute` at once, if there is one.

        It is called on the engine's own thread, without a task and without an event loop: for brief
        work that never waits.

        Args:
            task: The part of the step that the flow fixes.

        Returns:
            The function, from context and input to output, or None.
        """
        return None
