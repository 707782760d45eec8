"""Test case files: replies from outside, and the expected results (docs/testing.md).

Nothing in them is evaluated: texts with `${{` are plain text.
"""

from typing import Annotated, Any, Literal

from flowengine.flow.models.base import ExclusiveKeys, Field, Part
from flowengine.flow.models.expected import ExpectingCase, Words
from flowengine.flow.models.types import AsSchema, CheckedType, Duration, SentSignal, Value, wrong
from flowengine.kernel.notation.times import parse_time


def _time(value: Any) -> str:
    try:
        parse_time(value if isinstance(value, str) else "")
    except ValueError:
        wrong("a time with its zone such as 2026-01-31T09:00:00Z", value)
    return str(value)


def _user(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or ":" in value.removeprefix("user:"):
        wrong("a user such as user:ana", value)
    return value if value.startswith("user:") else f"user:{value}"


def _true(value: Any) -> bool:
    if value is not True:
        wrong("true", value)
    return True


Time = Annotated[str, CheckedType(_time), AsSchema({"type": "string", "minLength": 1})]
User = Annotated[str, CheckedType(_user), AsSchema({"type": "string", "minLength": 1})]
Yes = Annotated[bool, CheckedType(_true), AsSchema({"const": True})]


class Raised(Part):
    """An error that a call ends with."""

    NOUN = "an error"
    MAIN = "type"

    type: Words = Field(examples=["Timeout"])
    """Its type."""
    message: Words | None = Field(default=None, examples=["no answer in 30s"])
    """Its message."""
    data: Value = Field(default=None, examples=[{"status": 503}])
    """Data for handlers."""
    retryable: bool | None = Field(default=None, examples=[False])
    """Whether it may be retried. Default: depends on its type."""
    retry_after: Duration | None = Field(default=None, examples=["30s"])
    """The time that the other side requests to wait."""
    cause: Value = Field(default=None, examples=[None])
    """The error that caused it."""


class Answer(Part):
    """The result of one call of a step or tool."""

    NOUN = "an answer"
    RULES = (ExclusiveKeys(("return", "raise", "crash", "never")),)

    return_: Value = Field(default=None, key="return", examples=[{"status": 201}])
    """The result."""
    raise_: Raised | None = Field(default=None, key="raise", examples=["Timeout"])
    """The error."""
    crash: Yes | None = Field(default=None, examples=[True])
    """Whether the process dies during the call."""
    never: Yes | None = Field(default=None, examples=[True])
    """Whether the call never returns and lasts until it is cancelled."""
    after: Duration = Field(default="0s", examples=["2s"])
    """The duration of the call."""
    with_: Value = Field(default=None, key="with", examples=[{"to": "ana@example.com"}])
    """The expected arguments of the call. Different arguments fail the case."""


class Asking(Part):
    """Input that a call requests from a person while it runs."""

    NOUN = "a request for input"
    MAIN = "message"

    message: Words = Field(examples=["Which seat?"])
    """The message."""
    form: dict[str, Value] | None = Field(
        default=None, examples=[{"type": "object", "properties": {"seat": {"type": "string"}}}]
    )
    """JSON Schema of the values. Default: none."""


class CallAnswer(Answer):
    """The end of one call of a step or tool: a result, or a request for input."""

    RULES = (ExclusiveKeys(("return", "raise", "crash", "never", "asks")),)

    asks: Asking | None = Field(default=None, examples=[{"message": "Which seat?"}])
    """The input that the call requests, as a tool of an MCP server can. It is decided on under
    `approvals`, and then the next answer of the list follows."""


class Script(CallAnswer):
    """The results of the calls of a step or tool: one for all of them, or a list in order."""

    NOUN = "a script"
    MAIN = "calls"
    RULES = (ExclusiveKeys(("calls", "return", "raise", "crash", "never", "asks")),)

    calls: list[CallAnswer] | None = Field(default=None, examples=[[{"return": 1}]])
    """The answers in order, exactly one for each call."""


class RepliedCall(Part):
    """A call in a reply of a model."""

    NOUN = "a call"
    MAIN = "name"

    name: Words = Field(examples=["search"])
    """The tool."""
    arguments: Value = Field(default=None, examples=[{"query": "cranes"}])
    """Its arguments. A text is sent unchanged, even if it is not JSON."""
    id: Words | None = Field(default=None, examples=["c1"])
    """Its id. Default: generated."""


class Reply(Answer):
    """One reply of a model, or the failure of the request."""

    NOUN = "a reply"
    MAIN = "text"
    RULES = (ExclusiveKeys(("return", "raise", "crash", "never"), required=False),)

    with_: Value = Field(
        default=None, key="with", examples=[{"messages": [{"role": "user", "content": "Hello."}]}]
    )
    """The expected request to the model: new `instructions`, `tools` and `messages` since the
    previous turn. Any other request fails the case."""
    text: str = Field(default="", examples=["There are 12."])
    """The text."""
    calls: list[RepliedCall] = Field(
        default=[], examples=[[{"name": "search", "arguments": {"query": "cranes"}}]]
    )
    """The calls of tools."""
    reasoning: str = Field(default="", examples=["Let me see."])
    """The reasoning of the model."""
    finish: Literal["stop", "length", "filtered"] = Field(default="stop", examples=["length"])
    """The reason why the reply ends."""
    usage: dict[str, Value] = Field(
        default={}, examples=[{"input_tokens": 120, "output_tokens": 8}]
    )
    """The usage: `input_tokens`, `output_tokens`, `cost_usd`, …"""
    provider_parts: dict[str, Value] = Field(default={}, examples=[{}])
    """Data for the provider only, in recorded replies."""


class Replies(Part):
    """The replies of an agent's models, in order."""

    NOUN = "the replies of a model"
    MAIN = "in_order"
    RULES = (ExclusiveKeys(("in_order",)),)

    in_order: list[Reply] = Field(default=[], examples=[[{"text": "There are 12."}]])
    """The replies, exactly one for each request."""


class CaseDecision(Part):
    """A user's decision on an approval, a question or an uncertain step."""

    NOUN = "a decision"

    after: Duration = Field(default="0s", examples=["2d"])
    """The time since it was requested."""
    by: User | None = Field(default=None, examples=["user:ben"])
    """The user who decides. Default: the first one allowed to."""
    choice: Words | None = Field(default=None, examples=["approve"])
    """Id of the choice. May be omitted if there is only one."""
    edit: dict[str, Value] | None = Field(default=None, examples=[{"amount": 1200}])
    """Changes to the subject."""
    form: Value = Field(default=None, examples=[{"cost_center": "4711"}])
    """The values of the form."""
    comment: Words | None = Field(default=None, examples=["too expensive"])
    """Why."""
    value: Value = Field(default=None, examples=[{"id": 7}])
    """The result, for the choice `result` of an uncertain step."""
    attach: list[Words] = Field(default=[], examples=[["quote.pdf"]])
    """Attached files."""
    refused: Yes | None = Field(default=None, examples=[True])
    """Whether the decision must be refused, because the user is not allowed to make it."""


class Decisions(CaseDecision):
    """The decisions at a step: one for every time it asks, or a list in order."""

    NOUN = "a decision"
    MAIN = "in_order"

    in_order: list[CaseDecision] | None = Field(default=None, examples=[[{"choice": "approve"}]])
    """The decisions in order. Each is made once."""


class Sending(Part):
    """A signal from outside."""

    NOUN = "a signal"

    name: SentSignal = Field(examples=["paid"])
    """Its name, such as `agent.steer` for an agent."""
    at: Duration = Field(default="0s", examples=["1h"])
    """The time since the start of the execution."""
    data: Value = Field(default=None, examples=[{"amount": 3}])
    """The data of the message."""
    key: Value = Field(default=None, examples=["order-7"])
    """The key of the message."""
    by: User | None = Field(default=None, examples=["user:ana"])
    """The sender."""


class Cancelling(Part):
    """A cancellation of the execution."""

    NOUN = "'cancel'"
    MAIN = "at"

    at: Duration = Field(default="0s", examples=["1h"])
    """The time since the start of the execution."""
    reason: str = Field(default="", examples=["not needed"])
    """Why."""
    by: User | None = Field(default=None, examples=["user:ana"])
    """Who."""
    now: bool = Field(default=False, examples=[True])
    """Whether to skip `finally` and compensation."""


class Operating(Part):
    """An operator restarts a step, as `retry` and `fork` do."""

    NOUN = "an intervention"
    RULES = (ExclusiveKeys(("retry", "fork"), required=False),)

    at: Duration = Field(default="0s", examples=["1h"])
    """The time since the start of the execution."""
    retry: Words | None = Field(default=None, examples=["book"])
    """Address of the step to restart."""
    fork: Words | None = Field(default=None, examples=["book"])
    """Address of the step that is held until then and started."""
    set: dict[str, Value] = Field(default={}, examples=[{"limit": 100}])
    """State to write."""
    by: User | None = Field(default=None, examples=["user:ops"])
    """Who."""


class Case(ExpectingCase):
    """One execution of the flow, with all scripted results."""

    groups: dict[str, list[User]] = Field(default={}, examples=[{"managers": ["user:ben"]}])
    """The groups of users, in addition to those of the file."""
    by: User = Field(default="user:test", examples=["user:ana"])
    """The user who starts the execution."""
    id: Words | None = Field(default=None, examples=["order-7"])
    """Id of the execution."""
    at: Time = Field(default="2026-01-05T09:00:00Z", examples=["2026-03-01T12:00:00Z"])
    """The time of the start."""
    labels: dict[str, Words] = Field(default={}, examples=[{"team": "sales"}])
    """Its labels."""
    tools: dict[str, Script] = Field(default={}, examples=[{"mail": {"return": None}}])
    """Results of calls, by the name of the tool, the id of the step, its address, or
    `STEP/compensate`. The most specific entry applies."""
    agents: dict[str, Replies] = Field(
        default={},
        examples=[{"researcher": [{"calls": [{"name": "search"}]}, {"text": "There are 12."}]}],
    )
    """Replies of the models of agents, in order, by the name of the agent or the address of its
    turns. The number of requests must match."""
    approvals: dict[str, Decisions] = Field(
        default={}, examples=[{"manager": {"choice": "approve"}}]
    )
    """Decisions, by the id of the step or its address."""
    signals: list[Sending] = Field(default=[], examples=[[{"name": "paid"}]])
    """Signals from outside."""
    cancel: Cancelling | None = Field(default=None, examples=["1h"])
    """A cancellation of the execution."""
    operator: list[Operating] = Field(default=[], examples=[[{"at": "1h", "retry": "book"}]])
    """Interventions of an operator."""
    until: Duration | None = Field(default=None, examples=["3d"])
    """The time since the start of the execution at which the case ends if it still waits."""


class CaseFile(Part):
    """Test cases of a flow."""

    NOUN = "a file of test cases"

    flow: Words | None = Field(default=None, examples=["./expense.yaml"])
    """Path of the flow, relative to this file. Default: `NAME.yaml` for `NAME.test.yaml`."""
    groups: dict[str, list[User]] = Field(default={}, examples=[{"managers": ["user:ben"]}])
    """The groups of users, as in the settings of the host."""
    cases: list[Case] = Field(min_length=1, examples=[[{"name": "it works"}]])
    """The cases."""
