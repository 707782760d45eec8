"""Calls of tools as data, and what approves and runs them: the interface of a tool environment.

An agent hands each call to an `Environment` and gets an `EnvironmentResponse` back, whatever
happened: a fault of a tool is data, not an exception. `flowengine.tool_environment` has the
environment that comes with flowengine.

Loads pydantic: import it only where calls are handled.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    field_validator,
    model_validator,
)

from flowengine.errors import UsageError

Status = Literal[
    "ok", "error", "invalid", "rejected", "expired", "timed_out", "aborted", "uncertain"
]
"""How a call ended. `uncertain`: the process died while it ran, so nobody knows."""
Ran = Literal["yes", "no", "maybe"]
"""Whether the tool ran. `maybe`: it was stopped, or lost, in the middle."""
Choice = Literal["approve", "edit", "reject", "respond", "defer"]

NOT_RUN: frozenset[Status] = frozenset({"invalid", "rejected", "expired"})
"""Statuses of calls that never ran."""
LONGEST_FEEDBACK = 64 * 1024
"""Characters of a comment on a decision."""
MOST_IMAGES = 8
LARGEST_IMAGE = 10 * 1024 * 1024
"""Bytes of one image."""

_FORMATS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


class Data(BaseModel):
    """Base of what is exchanged: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Image(Data):
    """An image as data. Bytes and `data:` URLs are accepted in its place."""

    media_type: str
    data: str
    """Base64."""

    @model_validator(mode="before")
    @classmethod
    def _from_other_forms(cls, value: Any) -> Any:
        if isinstance(value, bytes | bytearray):
            return {
                "media_type": media_type(bytes(value)) or "unknown",
                "data": base64.b64encode(value).decode(),
            }
        if isinstance(value, str):
            head, comma, data = value.partition(";base64,")
            if not comma or not head.startswith("data:"):
                raise ValueError("is not an image: give bytes, or a data: URL in base64")
            return {"media_type": head.removeprefix("data:"), "data": data}
        return value

    @model_validator(mode="after")
    def _is_an_image(self) -> Image:
        if len(self.data) > LARGEST_IMAGE * 4 // 3 + 4:
            raise ValueError(f"is larger than {LARGEST_IMAGE} bytes; give a smaller one")
        try:
            begin = base64.b64decode(self.data, validate=True)[:16]
        except (binascii.Error, ValueError):
            raise ValueError("is not base64") from None
        if media_type(begin) != self.media_type:
            raise ValueError(
                f"is not an image of type {self.media_type}: give PNG, JPEG, GIF, WebP"
            )
        return self

    @property
    def url(self) -> str:
        """The image as a `data:` URL, as models are sent it."""
        return f"data:{self.media_type};base64,{self.data}"


def media_type(data: bytes) -> str | None:
    """Return the media type of an image, or None if the bytes are none that models take.

    Args:
        data: At least its first 16 bytes.
    """
    for name, begin in _FORMATS.items():
        if data.startswith(begin) and (name != "image/webp" or data[8:12] == b"WEBP"):
            return name
    return None


class ToolCall(Data):
    """A call of a tool, as a model or a program makes it."""

    type: Literal["toolCall"] = "toolCall"
    tool_call_id: Annotated[str, Field(strict=True, min_length=1, max_length=200)]
    tool_name: Annotated[str, Field(strict=True, min_length=1, max_length=200)]
    names: list[str] = Field(default_factory=list)
    """Further names of the tool, which the flow does not choose: `std.run_command` of a built-in
    tool, `module:function` of a Python function."""
    args: Annotated[dict[str, Any], Field(strict=True)] = Field(default_factory=dict)
    is_approval_pending: StrictBool = False
    """Somebody has been asked and has not decided yet."""
    is_loading: StrictBool = False
    """The arguments are still arriving."""
    preview: str | None = None
    """For whoever is asked: what the call would do, according to the tool."""
    preview_note: str | None = None
    """Why there is no preview although the tool has one."""
    found: dict[str, Any] | None = None
    """For whoever is asked: what the call found that it would do, `action` and `target`."""


def _given_images(value: Any) -> Any:
    return [] if value is None else value


Images = Annotated[list[Image], BeforeValidator(_given_images), Field(max_length=MOST_IMAGES)]


class ApprovalResponse(Data):
    """A decision about a call.

    `decision` says more than `approved` can: `edit` approves with other arguments (`args`),
    `respond` gives the result itself (`content`) so that nothing runs, `defer` leaves the question
    open for somebody else.
    """

    approved: StrictBool
    images: Images = Field(default_factory=list)
    """For the model."""
    feedback: Annotated[str, Field(strict=True, max_length=LONGEST_FEEDBACK)] | None = None
    """For the model, on approval as well as on rejection."""
    decision: Choice | None = None
    """Default: what `approved` says."""
    args: Annotated[dict[str, Any], Field(strict=True)] | None = None
    content: Annotated[str, Field(strict=True)] | None = None
    by: str = ""
    """Who decided; the environment fills it in."""

    @model_validator(mode="after")
    def _is_one_decision(self) -> ApprovalResponse:
        if self.decision is None:
            self.decision = "approve" if self.approved else "reject"
        if self.approved != (self.decision in {"approve", "edit"}):
            raise ValueError(f"'approved' contradicts the decision '{self.decision}'")
        if (self.args is not None) != (self.decision == "edit"):
            raise ValueError("'args' belongs to the decision 'edit', and to no other")
        if (self.content is not None) != (self.decision == "respond"):
            raise ValueError("'content' belongs to the decision 'respond', and to no other")
        return self


class ObserverResult(Data):
    """What an observer said of a call."""

    observer_name: str
    observer_result: Any = None
    error: str | None = None
    """Why there is no result, or why it is not the observer's own."""
    in_conversation: bool = False
    """Whether the model is told."""


class ToolResult(Data):
    """What came of a call."""

    tool_call_id: str
    tool_name: str
    success: bool
    status: Status
    content: Any = None
    """What the tool returned, as plain data; of a call that was stopped, what it had produced."""
    observer_results: dict[str, ObserverResult] = Field(default_factory=dict)
    ran: Ran = "yes"
    images: list[Image] = Field(default_factory=list)
    """That the tool returned."""
    artifacts: list[dict[str, Any]] = Field(default_factory=list)
    """Kept files, as `{path, name, size, sha256}`."""
    args: dict[str, Any] | None = None
    """The arguments that ran, where somebody changed them."""
    feedback: str | None = None
    """The comment of whoever decided."""
    feedback_images: list[Image] = Field(default_factory=list)
    message: str | None = None
    """What went wrong."""
    written_by: str | None = None
    """Who wrote `content` and `message`, if it is not to be trusted; see `Tool.written_by`."""
    replayed: bool = False
    """It comes from the ledger: the tool did not run again."""

    @model_validator(mode="before")
    @classmethod
    def _success_by_status(cls, value: Any) -> Any:
        if isinstance(value, dict) and "success" not in value:
            return {**value, "success": value.get("status") == "ok"}
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> ToolResult:
        if self.success != (self.status == "ok"):
            raise ValueError(f"'success' contradicts the status '{self.status}'")
        if self.status in NOT_RUN and self.ran != "no":
            raise ValueError(f"a call that is '{self.status}' did not run")
        return self


class ResponseError(Data):
    """Why a call has no good result."""

    code: str
    """The status of the call, or more exactly what is wrong: `unknown_tool`, `duplicate_call`."""
    message: str
    result: ToolResult | None = None
    """What there is of the call all the same."""


class EnvironmentResponse(Data):
    """The answer of an environment: a result or an error, never both."""

    result: ToolResult | ApprovalResponse | None = None
    error: ResponseError | None = None

    @field_validator("result", mode="before")
    @classmethod
    def _as_it_is(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return (ToolResult if "tool_call_id" in value else ApprovalResponse)(**value)
        return value

    @model_validator(mode="after")
    def _is_one_of_both(self) -> EnvironmentResponse:
        if (self.result is None) == (self.error is None):
            raise ValueError("a response has either a result or an error")
        return self

    @property
    def tool_result(self) -> ToolResult | None:
        """The result of the call, also if it is part of an error."""
        if self.error is not None:
            return self.error.result
        return self.result if isinstance(self.result, ToolResult) else None

    @property
    def status(self) -> Status | None:
        """How the call ended; None: there is no call that ended."""
        found = self.tool_result
        return None if found is None else found.status

    @property
    def ran(self) -> Ran | None:
        """Whether the tool ran; None: there is no call that ended."""
        found = self.tool_result
        return None if found is None else found.ran


@runtime_checkable
class Environment(Protocol):
    """Approves and runs calls of tools. Any object with these two methods is one."""

    async def approve_tool(self, call: ToolCall) -> EnvironmentResponse:
        """Ask whether a call may run; nothing runs.

        Args:
            call: The call.

        Returns:
            The `ApprovalResponse`, or an error.
        """

    async def execute_tool(self, call: ToolCall) -> EnvironmentResponse:
        """Approve and run a call.

        Args:
            call: The call.

        Returns:
            The `ToolResult`, or an error.
        """


class BaseEnvironment:
    """Base of environments that an interface can follow.

    Attributes:
        client: Who follows; None: nobody.
    """

    client: Any = None

    def set_client(self, client: Any) -> None:
        """Let an interface follow the calls.

        Args:
            client: The interface; None: nobody follows any more.
        """
        self.client = client


@runtime_checkable
class Observer(Protocol):
    """Is told of every call that ran, and may say something about it.

    With an attribute `in_conversation = True`, what it says is also sent to the model.
    """

    name: str
    description: str

    async def execute(self, call: ToolCall, result: ToolResult) -> Any:
        """Look at a call that ran, and return plain data about it.

        Args:
            call: A copy of the call.
            result: A copy of its result.
        """


def check_environment(environment: object) -> Environment:
    """Refuse what cannot approve and run calls.

    Args:
        environment: What was given as an environment.

    Returns:
        The same object.

    Raises:
        UsageError: It lacks a method; the message names it.
    """
    for method in ("approve_tool", "execute_tool"):
        if not callable(getattr(environment, method, None)):
            raise UsageError(
                f"{type(environment).__name__} is not an environment: it has no method '{method}'",
                hint="it needs async approve_tool(call) and execute_tool(call)",
            )
    return environment  # type: ignore[return-value]
