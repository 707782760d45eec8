"""`StepKind`: what an action key of a flow file does, and what the checker knows of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
)

from flowengine.kernel.graph.compiled import Plain

if TYPE_CHECKING:
    from flowengine.sdk.context import StepContext
    from flowengine.sdk.generated_flows import Declarations, GeneratedFlow
    from flowengine.sdk.previews import PreviewContext
    from flowengine.sdk.rehearsals import Rehearsal

Effect = Literal["pure", "idempotent", "once"]
"""How a call may be repeated: freely, with the same idempotency key, or never."""
AsText = Callable[[object, int], str | None]
"""What a call returned and the characters that a model is shown → how the model reads it."""
KindPlace = Literal["step", "tool", "generated"]


class SignatureError(Exception):
    """What a step calls, or its signature, cannot be read.

    Args:
        message: What is wrong.
        hint: What to do.
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
    """What a kind that takes arguments calls: known from the flow file, before anything runs."""

    args: dict[str, Plain] | None = None
    """JSON Schema of the arguments, an object; None: unknown."""
    returns: dict[str, Plain] | None = None
    """JSON Schema of the result; None: what `output_of` says."""
    task: Mapping[str, Plain] = {}
    """What `execute` needs in `task` besides the constants. The compiled flow stores it: it is
    small, and the same whenever the flow is compiled."""
    environments: Mapping[str, Sequence[str]] = {}
    """Arguments that take an environment → full names of the classes of which it has to be one. The
    checker looks for an environment that fits, so callers need not name it."""
    files: Sequence[str] = ()
    """What it was read from: a stored flow is compiled again when one of them changes."""
    description: str = ""
    """What it does, for who may call it."""
    takes_resources: bool = False
    """It takes all environments that it is given, whatever their names."""
    optional_environments: Mapping[str, Sequence[str]] = {}
    """The same as `environments`, of those that it gets only if the step or tool names them."""
    opens: Mapping[str, str] = {}
    """Environments that are opened for it if none is named: name → kind, as of `Tool`."""


class Meter(NamedTuple):
    """How an attempt tells what it uses of a budget."""

    used: Sequence[str] = ()
    """Paths into the output, `usage.input_tokens`, whose amounts are added up. Of an attempt that
    fails they lead into the `data` of its error; an error that says nothing has used nothing."""
    reserved: str | None = None
    """Path into the input: what it will use at most. So much is taken as used if nobody learns what
    it was, as after a crash."""


class Need(NamedTuple):
    """What an attempt may use of a meter, worked out before it begins."""

    least: float
    """It does not begin with less than this left."""
    most: float
    """It never uses more than this."""
    beyond: float = 0
    """How far it may go beyond what is left: by as much as `most` may be too careful."""


class Synonym(NamedTuple):
    """Words that people bring from elsewhere to the keys of a configuration."""

    words: str
    """The words, with blanks between them."""
    hint: str
    """What to write: `write 'body: {…}'`."""
    key: str | None = None
    """The key that is meant."""


class Tool(TypedDict):
    """A tool that a step kind brings: `call: std.print`."""

    description: str
    args: dict[str, Plain]
    """JSON Schema of the arguments."""
    returns: dict[str, Plain]
    """JSON Schema of the result."""
    effect: Effect
    environment: NotRequired[str]
    """A kind of environment that it works in; `context.resources` has it under the name of the
    kind. It is the one of that kind that the step or tool names, else the one of that name and kind
    that the flow file declares, else one that is not configured, opened once for an execution."""
    environments: NotRequired[Mapping[str, Sequence[str]]]
    """Environments that it works in: name → full names of classes, as in `CallSignature`. Each is
    the only one of those that fits in the flow's file, or the one that the declaration of the tool
    names. None is ever opened without being declared."""
    apart: NotRequired[bool]
    """Whether `std.*` leaves it out, as it leads to places that nobody has named: an agent's file
    says at least the beginning of its name, as in `std.browser_*`."""
    optional: NotRequired[bool]
    """Whether it works without its `environments`, too: it then gets only those that a declaration
    of the tool names."""


class BuiltFlow(Protocol):
    """A flow that Python builds, as declarations are added to it."""

    head: dict[str, Any]
    """What stands at the top of its file: section → name → declaration."""
    folder: str
    """Where it would stand as a file."""

    def declare(self, section: str, name: str, spec: Any) -> str:
        """Declare something, and return its name."""

    def reference(self, function: Any) -> str:
        """Return the name of a function, as another process finds it.

        Raises:
            UsageError: It would not find it.
        """


class StepKind:
    """What an action key of a flow file does. One object per process; attempts may overlap.

    A class of a package is registered by an entry point in the group `flowengine.nodes`; the
    entry point's name is the action key.
    """

    # What the checker and the compiler ask. A class is imported for it only where a flow uses it.

    places: ClassVar[tuple[KindPlace, ...]] = ("step", "tool")
    """Where its name stands in a flow file: as the action of a step, as the kind of a tool; or only
    in flows that kinds generate. A kind with no place is used by the `tools` it brings."""
    effect: ClassVar[Effect] = "once"
    """What may be repeated after a crash in the middle, unless the step or tool says it."""
    idempotent_if: ClassVar[str] = ""
    """What has to be true before a flow may say `effect: idempotent`, as a clause: the hint of an
    error ends with it."""
    constants: ClassVar[Collection[str]] = ()
    """Keys of the configuration that hold no expressions. They are in `task`, not in `input`."""
    constants_hint: ClassVar[str | None] = None
    """What to do where an expression stands in a constant."""
    secrets: ClassVar[Collection[str]] = ()
    """Keys of the configuration that may name secrets; elsewhere they are refused."""
    synonyms: ClassVar[Sequence[Synonym]] = ()
    """Words from elsewhere, for hints about unknown keys and, of a kind that generates flows,
    unknown arguments."""
    meters: ClassVar[Mapping[str, Meter] | None] = None
    """What an attempt uses of budgets instead of one of `tool_calls`: `tokens`, `cost_usd` (US
    dollars), or nothing. None: it is a tool call."""
    in_environment: ClassVar[bool] = False
    """Whether it works in an environment that the flow chooses: by `in` of the step or of the
    configuration, by `defaults.in`, else `host`. `task["in"]` has the name, and
    `context.environment` opens it."""
    command: ClassVar[str | None] = None
    """The key with a program and its arguments. The checker warns of values in the text of a
    program, and refuses a program on the host that a value names."""
    takes_arguments: ClassVar[bool] = False
    """Whether it calls something with arguments: `with` of a step, `args` and `bind` of a tool.
    Then `signature` says what is called, and `input` is `{"args": …}`, beside it `bind` if the flow
    fixes arguments, and `configuration` if the configuration has more than constants. An
    environment with the name of an argument takes its place: `context.resources` has it."""

    may_start_agents: ClassVar[bool] = False
    """Whether its code may run agents in this process (`MetaChain`): the policies of the flow then
    hold for the calls of those, too."""
    foreign: ClassVar[bool] = False
    """Whether others may have written what it returns, and why it fails: as a tool of an agent, its
    text is shown to the model in a marked block, as text that gives no instructions."""
    outcomes: ClassVar[Sequence[str]] = ("ok",)
    """How a step that runs a generated flow can end, but for errors."""
    raises: ClassVar[Mapping[str, str]] = {}
    """Its other outcomes → the errors that they raise unless `next` routes them."""

    session: ClassVar[str | None] = None
    """A kind of environment. A tool of this step kind is then a server of tools, called as
    `name.tool`: what stands behind its key is the configuration of such an environment, which opens
    once for an execution. Beside it stand `include` and `exclude`, names or globs of the tools that
    a flow may call, and `in`, a declared environment instead of one of its own. `task["server"]`
    names the session in `context.resources`, `task["tool"]` the tool. Agents are offered what
    `async_offers()` of the session returns, as a list of `OfferedTool`; of a tool that one of them
    calls, `input["offered"]` has the `tool`, its name, and the `digest` of what was offered."""

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of what stands behind the action key; default: any map.

        `x-main` names the property that a bare value stands for, as `script` in `run: make test`.
        """
        return {"type": "object"}

    @classmethod
    def synonym(cls, word: str) -> Synonym | None:
        """Return what a word from elsewhere means.

        Args:
            word: In place of a key.
        """
        return next((synonym for synonym in cls.synonyms if word in synonym.words.split()), None)

    @classmethod
    def output(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the output; default: unknown."""
        return {}

    @classmethod
    def effect_of(cls, configuration: Mapping[str, Plain]) -> Effect:
        """Return the `effect` of a step or tool by its configuration; default: that of the kind.

        Args:
            configuration: As it stands in the file, in long form: values may be expressions.
        """
        return cls.effect

    @classmethod
    def foreign_of(cls, task: Mapping[str, Plain], effect: str) -> bool:
        """Return `foreign` by the constants and effect of a step; default: that of the kind.

        Args:
            task: The constants.
            effect: What the flow declares, or the kind's own.
        """
        return cls.foreign

    @classmethod
    def reads(cls, configuration: Mapping[str, Plain]) -> Collection[str]:
        """Return the state keys that `execute` finds in `context.state`; default: none.

        They are handed over by reference: however large they are, an attempt costs no more. The
        flow that the step is in has to declare them.

        Args:
            configuration: As it stands in the file, in long form: values may be expressions.
        """
        return ()

    @classmethod
    def output_of(cls, configuration: Mapping[str, Plain]) -> dict[str, Plain]:
        """Return the JSON Schema of the output by the configuration; default: that of the kind.

        Args:
            configuration: As it stands in the file, in long form: values may be expressions.
        """
        return cls.output()

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return what is called; asked only of a kind that `takes_arguments`.

        Nothing may be executed or asked of a network here: a flow is checked offline, and before
        anybody has agreed to run it. `flowengine.sdk.python_functions` reads Python functions.

        Args:
            configuration: As it stands in the file, in long form.
            folder: Folder of the flow file, absolute.

        Returns:
            Default: nothing is known of arguments and result.

        Raises:
            SignatureError: It does not exist, or cannot be called with named arguments.
        """
        return CallSignature()

    @classmethod
    def declared(cls, given: object, flow: BuiltFlow) -> object:
        """Return what a file says in place of a Python object, which a flow in Python may be given.

        Args:
            given: What stands behind the kind's name, and is no plain data.
            flow: Takes the declarations that it names.

        Returns:
            A name, or a configuration; default: what was given.
        """
        return given

    @classmethod
    def generate(
        cls, configuration: Mapping[str, Plain], declarations: Declarations
    ) -> GeneratedFlow | None:
        """Return a flow that a use of this kind runs; default: None, `execute` does the work.

        A kind that generates flows `takes_arguments`: they are inputs of the flow. Nothing may be
        executed or asked of a network here, as in `signature`.

        Args:
            configuration: As it stands in the file, in long form.
            declarations: What the file declares.

        Returns:
            The flow; None also if what is wrong was reported by `declarations`.
        """
        return None

    async def needs(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Mapping[str, Need]:
        """Return what an attempt may use of the budgets around it, before it begins.

        Asked where a budget bounds one of the kind's `meters`. The attempt then gets
        `context.granted` and keeps to that. With less than `least` left it does not begin. Nothing
        may be used or changed here.

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
        """Return what a picture of the flow shows behind the name of the kind; default: nothing.

        Args:
            task: The constant part of a compiled step.
        """
        return ""

    @classmethod
    def address(cls, configuration: Mapping[str, Plain]) -> str | None:
        """Return the address to which a request goes, with its expressions; None: there is none.

        A model must not choose the server that gets a secret, or that only this machine reaches.

        Args:
            configuration: What stands behind the key of the kind, in long form.
        """
        return None

    @classmethod
    def names(cls, task: Mapping[str, Plain]) -> list[str]:
        """Return the names of what a task calls that no flow chooses, such as a function's path.

        Rules about calls know a declared tool by them as well as by its own name. Default: the
        label, where the kind can be a step.

        Args:
            task: The constant part of a compiled step.
        """
        label = cls.label(task)
        return [label] if label and "step" in cls.places else []

    @classmethod
    def tools(cls) -> dict[str, Tool]:
        """Return tools that need no declaration, called as `kind.tool`; default: none."""
        return {}

    def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Awaitable[Plain]:
        """Do the work of one attempt, as a coroutine.

        Cancellation of the awaiting task withdraws the attempt: end what was started, then let the
        cancellation go on.

        Args:
            context: The attempt.
            task: What the flow fixes for the step: the `constants`, or the `task` of the
                signature, and `in` of a kind that works in an environment.
            input: What else stands behind the action key, evaluated, or the arguments; secrets are
                text here.

        Returns:
            The output: plain data (JSON and bytes).

        Raises:
            NotImplementedError: The kind does not say how.
        """
        raise NotImplementedError

    def adapt(
        self, context: StepContext, task: Mapping[str, Plain], result: object, text: AsText
    ) -> Plain:
        """Make what a call in a flow of this kind returned into the output of its step.

        Args:
            context: The attempt.
            task: What the step's mark says.
            result: What the call returned: any value, plain data or not.
            text: Returns what `text_for_model` of the called kind makes of it.

        Returns:
            Plain data.
        """
        raise NotImplementedError

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return the output of a tool call as the model that made it reads it.

        A flow uses the output as data. A model reads text more reliably than JSON with escaped line
        breaks and quotes, so a kind whose output holds text says here how it reads.

        Args:
            task: As for `execute`.
            input: As for `execute`.
            output: What `execute` returned, secrets masked. In a test case it is what the case
                says, of whatever form: if an error is raised, the output is shown as JSON.
            room: Characters that the model is shown; the middle of a longer text is left out.

        Returns:
            The text; default: None, the output is shown as JSON.
        """
        return None

    def rehearse(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Rehearsal | None:
        """Return how an attempt goes in a test case, where nothing outside is asked.

        Args:
            context: The attempt: `state`, `fallback`, `address`, `execution.id` and `.workdir`.
            task: As for `execute`.
            input: As for `execute`; secrets are named.

        Returns:
            Default: None, the case has the output.

        Raises:
            StepError: The attempt fails before anything is asked.
        """
        return None

    @classmethod
    def tell(cls, output: Plain) -> str | None:
        """Return what the output of a step in a flow of this kind means to people, in a line.

        Args:
            output: Of a step whose mark asks for it; perhaps of an earlier version of the kind.

        Returns:
            Text, not yet fit for a terminal; None: the output is shown as it is.
        """
        return None

    @classmethod
    def ahead(cls, task: Mapping[str, Plain], labels: Mapping[str, str]) -> None:
        """Load what a step will need that takes long to load. Default: nothing.

        Called for steps of generated flows whose mark says `ahead`, on a thread of its own, when an
        execution begins, or goes on inside of such a flow. The step may never be reached; nothing
        that is done here may be seen outside of this process.

        Args:
            task: The constant part of the step's configuration.
            labels: Of the execution.
        """

    def source(self, task: Mapping[str, Plain]) -> str | None:
        """Return the text of what `execute` would call now, in this process. Default: none.

        A call that people approve is of just this text. If it is another one when the call is about
        to be made, they are asked again, with the difference. Nothing may be executed here.

        Args:
            task: The constant part of the step's configuration.

        Returns:
            For example the source of a module; None: there is none, or it cannot be read.
        """
        return None

    @classmethod
    def has_preview(cls, task: Mapping[str, Plain]) -> bool:
        """Return whether `preview` may have something to show. Default: if a kind has its own.

        Args:
            task: The constant part of the step's configuration.
        """
        return cls.preview is not StepKind.preview

    def preview(
        self, task: Mapping[str, Plain], args: dict[str, Plain], context: PreviewContext
    ) -> str | None:
        """Return what a call would do, for people who are asked about it. Default: none.

        Called on a thread, while the question is open. Nothing may be changed here; what takes
        longer than two seconds is not waited for.

        Args:
            task: The constant part of the step's configuration.
            args: The arguments, those that the flow fixes included; secrets are `***`.
            context: What can be looked at.

        Returns:
            Text of at most 20,000 characters, such as a diff; None: there is nothing to show.
        """
        return None

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether `execute` uses `context.resources`; may take its time. Default: no.

        A step that does has the environments that its execution was given.

        Args:
            task: The constant part of the step's configuration.
        """
        return False

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return a plain function that does what `execute` does at once, if there is one.

        It is called on the engine's own thread, without a task and without an event loop: for work
        of a moment that never waits.

        Args:
            task: What the flow fixes for the step.

        Returns:
            The function, from context and input to output, or None.
        """
        return None
