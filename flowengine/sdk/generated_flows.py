"""Flows that step kinds generate: a step of such a kind runs a flow made for it.

What a kind generates is an entry of `flows:` of the flow language, in long form, as plain data. It
is compiled as if it stood in the file that declares what it was made from, and runs like any other
subflow. The names in it may hold dots and begin with an underscore, which those of a file cannot:
so they never clash with what the file's own declarations see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from flowengine.kernel.graph.compiled import Plain

GLOB = frozenset("*?[")
"""What makes a pattern of a name."""

Loc = tuple[str | int, ...]
"""A path of keys and indexes into a flow file."""


class ServerTools(NamedTuple):
    """Tools of a server: which there are is known when it is asked."""

    server: str
    """The tool that is the server: `name`, or `alias.name` of an import."""
    pattern: str
    """A name on the server, or a glob over names."""
    include: Sequence[str] | None
    """Names or globs of those that may be called; None: all."""
    exclude: Sequence[str]
    """Names or globs of those that may not."""


class DeclaredTool(NamedTuple):
    """A tool as those who call it see it."""

    name: str
    """By which steps of the generated flow call it."""
    description: str
    """Empty: none is known."""
    args: Mapping[str, Plain] | None
    """JSON Schema of what a caller gives; None: only the server that has it knows."""
    declaration: Mapping[str, Plain]
    """As it stands in its file, in long form; empty for tools that need no declaration."""
    server: ServerTools | None = None
    """It is, or they are, of a server: `name` may be a glob."""
    by_default_on_host: bool = False
    """It runs commands on the host, only because nothing says where."""
    has_unread_parameters: bool = False
    """It is a Python function whose parameters no source tells."""
    modifiers: Mapping[str, Plain] = {}
    """What a step that calls it says besides: the environments that it takes of those offered."""


class Declarations(Protocol):
    """What a flow file declares."""

    @property
    def defaults(self) -> Mapping[str, Plain]:
        """`defaults` of the file, in long form."""

    def find(self, section: str, name: str, loc: Loc) -> Declared | None:
        """Return what a name of a section means; None if it was reported that there is none.

        Args:
            section: Such as `agents`.
            name: `name`, or `alias.name` of an import.
            loc: Where it is named; empty: by the step.
        """

    def tools(
        self,
        pattern: str,
        loc: Loc,
        environments: Mapping[str, Mapping[str, Plain]] = ...,
        words: Sequence[str] = ...,
    ) -> list[DeclaredTool]:
        """Return the tools that a name or glob means, for models and what they write.

        That there are none is reported, and those whose caller decides to which server they send
        requests are.

        Args:
            pattern: A name, or a glob over names.
            loc: Where it stands.
            environments: What they may work in: name → `{environment: arguments}`. Each takes what
                it has a use for.
            words: What may stand there in place of a tool, to be told where there is none.
        """

    def text(self, path: str, loc: Loc) -> str:
        """Return the text of a file; that it cannot be read is reported, and the text empty.

        Args:
            path: Relative to the flow file.
            loc: Where it is named.
        """

    def function(self, name: str, loc: Loc) -> Mapping[str, Plain]:
        """Return how a Python function is found; that it is not there is reported.

        Args:
            name: `module:function`; modules beside the flow file come first.
            loc: Where it is named.

        Returns:
            Its `name`, and the `folder` where its module is looked for first.
        """

    def folders(
        self, pattern: str, marked: str, largest: int, loc: Loc
    ) -> Mapping[str, Mapping[str, bytes]]:
        """Return the folders that a path or glob means; what is wrong with one is reported.

        The flow is compiled again when something in them changes. Names that begin with a dot are
        left out.

        Args:
            pattern: Relative to the flow file.
            marked: A file that a folder has to have; of a glob, others are passed over.
            largest: Bytes of all files of a folder.
            loc: Where it is named.

        Returns:
            By the path of the folder, relative to the flow file: the content of its files by their
            relative paths.
        """

    def refuse(self, code: str, message: str, loc: Loc, hint: str | None = None) -> None:
        """Report an error.

        Args:
            code: For example `E401`.
            message: What is wrong, in one line.
            loc: Where; empty: at the step.
            hint: What to do.
        """


class Declared(NamedTuple):
    """Something that a file declares."""

    name: str
    """In its file."""
    content: Mapping[str, Plain]
    """As it stands there, in long form."""
    loc: Loc
    """Where it stands there."""
    home: Declarations
    """What else is declared there."""
    prefix: str = ""
    """By which import the file that asked has it: `lib.`."""


class Given(NamedTuple):
    """A value that a generated flow is given."""

    value: Plain
    """As in a file: with expressions. They see what declarations see and, in the flow of the file,
    its state."""
    loc: Loc
    """Where it stands in the file."""
    home: Declarations
    """The file in which it stands."""


class Offered(NamedTuple):
    """What is known of a tool of a server once it was offered, as expressions."""

    schema: str
    """The JSON Schema of its arguments."""
    digest: str
    """The digest of what was offered: a tool of another one is not called."""
    tool: str = ""
    """The name of the tool on the server; empty: the step calls one by its name."""


@dataclass(frozen=True)
class Mark:
    """What a step of a generated flow is beside what the language can say."""

    plumbing: bool = False
    """It only holds the flow together: left out where people look at an execution, unless something
    is wrong with it."""
    reads: Sequence[str] = ()
    """State keys that a call finds in `context.state`."""
    adapter: Mapping[str, Plain] | None = None
    """The kind that generated the flow makes what the call returned into its output: `adapt` gets
    this as its `task`, with the `source` of what the call returned if others write it."""
    anew: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Keys of its input → where their values stand in what the flow is `given` from its file. They
    are evaluated each time the step is reached: time and state are then those of that moment."""
    servers: Sequence[str] = ()
    """Tools that are servers: `context.resources` has the sessions with them, by their names."""
    offered: Offered | None = None
    """It calls a tool of a server that was offered; `call` may name the server."""
    inputs: Mapping[str, Plain] = field(default_factory=dict)
    """What the generated flow that it runs is given besides the arguments, as in a file."""
    about: Mapping[str, str] = field(default_factory=dict)
    """What people who are asked about its call are shown of what led to it: name → expression."""
    in_order: bool = False
    """Its place for its lock is that of its first attempt, not of the permission to begin it."""
    tool: str = ""
    """The name of what it calls for people and rules, as a model knows it; empty: the one by which
    the step calls it."""
    caller: str = ""
    """In whose name it calls a tool, such as that of an agent: rules about calls look at it."""
    caller_limit: tuple[str, int] | None = None
    """Who that is among all callers of an execution, and how many calls it may make."""
    chat: bool = False
    """It shows people an answer of a conversation, and takes what they say next."""
    told: bool = False
    """The kind says in a line what its output means to people: `tell`."""
    ahead: bool = False
    """Its step kind may load what the step will need as soon as an execution begins: `ahead`."""
    says: str | None = None
    """What a picture says of it, in place of its settings."""
    ways: Sequence[str] = ()
    """What a picture says of its ways out, in their order, in place of their conditions."""


@dataclass(frozen=True)
class GeneratedFlow:
    """A flow that a step kind made from a use of it."""

    id: str
    """Its name; flows of one file that are called the same have to be the same."""
    body: Mapping[str, Plain]
    """An entry of `flows`, in long form."""
    home: Declarations
    """The file whose declarations it sees."""
    homes: Mapping[str, Declarations] = field(default_factory=dict)
    """Steps → the file whose declarations they see, where it is another one."""
    loc: Loc = ()
    """Where in that file is what it was made from: errors in it are reported there."""
    given: Mapping[str, Given | Mapping[str, Given]] = field(default_factory=dict)
    """Inputs that get a value from the file, or a map of such values. One more is `_args`: the
    arguments of the call."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """By the ids of steps."""
    returns: Mapping[str, Plain] = field(default_factory=dict)
    """JSON Schema of the output of a step that runs it: that of its output `output`. What else it
    gives is seen as `steps.x.NAME`."""
