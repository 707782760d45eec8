"""Tool calls as data, and the interface of a tool environment, which approves and runs them.

An agent passes each call to an `Environment` and receives an `EnvironmentResponse` for every
outcome. A failure of a tool is data, not an exception. `flowengine.tool_environment` contains the
built-in environment.

Loads pydantic: import it only where calls are handled.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)

from flowengine.errors import InputError, UsageError
from flowengine.kernel.view import RESPOND, only_choice
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.texts.validation_messages import faults

Status = Literal[
    "ok", "error", "invalid", "rejected", "expired", "timed_out", "aborted", "uncertain"
]
"""The outcome of a call. `uncertain`: the process died while the call ran, so the outcome is
unknown."""
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
    """Base of the exchanged data. Unknown fields are errors."""

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
            raise ValueError(f"is larger than {size_text(LARGEST_IMAGE)}: give a smaller one")
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
    """Return the media type of an image, or None if models do not accept its format.

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
    """Whether an approval was requested and is still open."""
    is_loading: StrictBool = False
    """Whether the arguments are still arriving."""
    preview: str | None = None
    """For approvers: the effect of the call, according to the tool."""
    preview_note: str | None = None
    """The reason why the preview is missing although the tool has one."""
    found: dict[str, Any] | None = None
    """For approvers: the action that the call turned out to perform, as `action` and `target`."""


def _given_images(value: Any) -> Any:
    return [] if value is None else value


Images = Annotated[list[Image], BeforeValidator(_given_images), Field(max_length=MOST_IMAGES)]


class ApprovalResponse(Data):
    """A decision about a call.

    `decision` has more choices than `approved`: `edit` approves with other arguments (`args`),
    `respond` supplies the result itself (`content`) so that nothing runs, and `defer` leaves the
    approval open for another approver.
    """

    approved: StrictBool
    images: Images = Field(default_factory=list)
    """For the model."""
    feedback: Annotated[str, Field(strict=True, max_length=LONGEST_FEEDBACK)] | None = None
    """For the model, on approval as well as on rejection."""
    decision: Choice | None = None
    """Default: derived from `approved`."""
    args: Annotated[dict[str, Any], Field(strict=True)] | None = None
    content: Annotated[str, Field(strict=True)] | None = None
    by: str = ""
    """The approver, set by the environment."""

    @classmethod
    def of(cls, given: Any) -> ApprovalResponse:
        """Validate a decision.

        Args:
            given: A decision, a mapping with its fields, a boolean, or a response with one.

        Returns:
            A copy, which later changes to the original do not affect.

        Raises:
            InputError: It is none of these. The message names the invalid fields.
        """
        if isinstance(given, EnvironmentResponse):
            if given.error is not None:
                raise InputError(given.error.message)
            given = given.result
        if isinstance(given, bool):
            given = {"approved": given}
        if isinstance(given, ApprovalResponse):
            given = given.model_dump()
        if not isinstance(given, Mapping):
            why = f"{type(given).__name__} is not a decision: give an ApprovalResponse"
            raise InputError(why)
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            field = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise InputError(f"the decision is not valid: {faults(error)}", field=field) from None

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

    def answer_to(self, question: Mapping[str, Any]) -> Any:
        """Return the decision as an answer to the question about a call of an execution.

        Args:
            question: The wait, with its choices and its subject.

        Returns:
            A `flowengine.engines.results.DecisionGiven`. None: the decision is deferred, is none of
            the choices, or removes an argument.
        """
        if self.decision == "defer":
            return None
        answer: dict[str, Any] = {"comment": self.feedback}
        if self.decision == "respond":
            return {**answer, "choice": RESPOND, "value": self.content}
        choice = only_choice(question, "approve" if self.approved else "reject")
        if choice is None:
            return None
        if self.args is not None:
            subject = question["subject"]
            if subject.keys() - self.args.keys():
                return None
            edits = {k: v for k, v in self.args.items() if k not in subject or subject[k] != v}
            answer["edit"] = edits
        images = [image.url for image in self.images]
        return {**answer, "choice": choice["id"], "images": images}


class ObserverResult(Data):
    """A comment of an observer on a call."""

    observer_name: str
    observer_result: Any = None
    error: str | None = None
    """The reason why the result is missing, or is not the observer's own."""


class ToolResult(Data):
    """The outcome of a call."""

    tool_call_id: str
    tool_name: str
    success: bool
    status: Status
    content: Any = None
    """The result of the tool, as plain data. For a stopped call, the output so far."""
    observer_results: dict[str, ObserverResult] = Field(default_factory=dict)
    ran: Ran = "yes"
    images: list[Image] = Field(default_factory=list)
    """Images that the tool returned."""
    args: dict[str, Any] | None = None
    """The arguments that ran, if an approver changed them."""
    feedback: str | None = None
    """The comment of the approver."""
    feedback_images: list[Image] = Field(default_factory=list)
    message: str | None = None
    """The error."""
    replayed: bool = False
    """Whether its execution existed before, so that the tool did not run again."""

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
    """The reason why a call has no good result."""

    code: str
    """The status of the call."""
    message: str
    result: ToolResult | None = None
    """The partial result of the call."""


class EnvironmentResponse(Data):
    """The response of an environment: a result or an error, never both."""

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
        """The outcome of the call. None if no call has ended."""
        result = self.tool_result
        return None if result is None else result.status

    @property
    def ran(self) -> Ran | None:
        """Whether the tool ran. None if no call has ended."""
        result = self.tool_result
        return None if result is None else result.ran


@runtime_checkable
class Environment(Protocol):
    """Approves and runs tool calls. Any object with these two methods is an environment."""

    async def approve_tool(self, call: ToolCall) -> EnvironmentResponse:
        """Request approval of a call without running it.

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


@runtime_checkable
class Observer(Protocol):
    """Is notified of every call that ran, and may comment on it."""

    name: str
    description: str

    async def execute(self, call: ToolCall, result: ToolResult) -> Any:
        """Look at a call that ran, and return plain data about it.

        Args:
            call: A copy of the call.
            result: A copy of its result.
        """


def check_environment(environment: object) -> Environment:
    """Refuse an object that cannot approve and run calls.

    Args:
        environment: The object given as an environment.

    Returns:
        The same object.

    Raises:
        UsageError: A method is missing. The message names it.
    """
    for method in ("approve_tool", "execute_tool"):
        if not callable(getattr(environment, method, None)):
            raise UsageError(
                f"{type(environment).__name__} is not an environment: it has no method '{method}'",
                hint="it needs async approve_tool(call) and execute_tool(call)",
            )
    return environment  # type: ignore[return-value]
