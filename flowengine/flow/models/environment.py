"""Declared environments, in which steps and tools work (docs/language.md: environments)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from flowengine.flow.models.actions import AskFirst
from flowengine.flow.models.base import MappingProblem, Part
from flowengine.flow.models.schemas import Schema
from flowengine.flow.models.types import (
    AsSchema,
    CheckedType,
    Duration,
    Template,
    Text,
    Value,
    wrong,
)

BACKGROUND = "background"
"""Value of `eager`: it is opened at the start, while the steps begin."""


def _at_start(value: Any) -> bool | str:
    if not isinstance(value, bool) and value != BACKGROUND:
        wrong(f"true, false or {BACKGROUND!r}", value)
    return value  # type: ignore[no-any-return]


class Environment(Part):
    """A managed live resource: a sandbox, a shell, a database, a session with a server."""

    NOUN = "an environment"

    kind: Text = Field(description="The kind of environment.", examples=["python", "sqlite"])
    scope: Literal["step", "region", "execution", "session"] | None = Field(
        default=None,
        description="How widely it is shared. Default: `execution`, or `step` if only "
        "tools name it.",
        examples=["region"],
    )
    key: Template | None = Field(
        default=None,
        description="The key of the session that shares it, for the scope `session`.",
        examples=["${{ inputs.customer }}"],
    )
    args: Schema | None = Field(
        default=None,
        description="JSON Schema of the arguments that its users pass. `config` sees `args`.",
        examples=[{"type": "object", "properties": {"python": {"type": "string"}}}],
    )
    config: dict[str, Value] = Field(
        default_factory=dict,
        description="Settings of the kind.",
        examples=[{"image": "ci:py${{ args.python }}"}],
    )
    policy: dict[str, Value] = Field(
        default_factory=dict,
        description="The permissions of the environment. They can only narrow those of the host.",
        examples=[{"network": "none"}],
    )
    limits: dict[str, Value] = Field(
        default_factory=dict,
        description="Resource limits: cpus, memory, processes, disk, time, output.",
        examples=[{"memory": "2GiB", "cpus": 2}],
    )
    requires: dict[str, Value] = Field(
        default_factory=dict,
        description="Properties that the machine must provably enforce. Otherwise the "
        "environment is refused.",
        examples=[{"isolation": "container"}],
    )
    approval: AskFirst | None = Field(
        default=None,
        description="Whether an approval is required before it is opened. Default: `none`.",
        examples=["required", {"assignees": ["group:ops"], "expires": "1d"}],
    )
    on_wait: Literal["keep", "release"] | None = Field(
        default=None,
        description="The treatment of the environment while the execution waits. "
        "Default: depends on the kind.",
        examples=["keep"],
    )
    keep_for: Duration = Field(
        default="1h", description="How long `keep` keeps it open.", examples=["10m"]
    )
    eager: Annotated[
        bool | str,
        CheckedType(_at_start),
        AsSchema({"enum": [True, False, BACKGROUND]}),
    ] = Field(
        default=False,
        description="Whether it is opened at the start. With `background`, the steps "
        "begin meanwhile.",
        examples=[True, BACKGROUND],
    )
    provider: Text | list[Text] | None = Field(
        default=None,
        description="The sandbox provider, or several in order of preference. Default: "
        "depends on the kind.",
        examples=["docker", ["docker", "namespace"]],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require a key for sessions, and refuse one for other scopes."""
        yield from super().problems(given)
        if given.get("scope") == "session" and "key" not in given:
            message = "an environment of scope 'session' needs a 'key': whose it is"
            yield MappingProblem(None, "E104", message, "add 'key'")
        if "key" in given and given.get("scope") != "session":
            message = "only an environment of scope 'session' has a 'key'"
            yield MappingProblem("key", "E103", message, "leave it out, or set 'scope: session'")
        if given.get("eager") in (True, BACKGROUND):
            yield from _eager_problems(given)


def _eager_problems(given: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Find settings of `eager` that are unknown or not shared at the start of a flow."""
    scope = given.get("scope")
    if scope in ("step", "region"):
        message = f"an environment of scope {scope!r} cannot be opened at the start: there is none"
        yield MappingProblem("eager", "E103", message, "leave it out, or share it further")
    if "args" in given:
        message = "an environment with 'args' cannot be opened at the start: its users give them"
        yield MappingProblem("eager", "E103", message, "leave it out")
