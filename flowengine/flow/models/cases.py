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

    type: Words = Field(description="Its type.", examples=["Timeout"])
    message: Words | None = Field(
        default=None, description="Its message.", examples=["no answer in 30s"]
    )
    data: Value = Field(default=None, description="Data for handlers.", examples=[{"status": 503}])
    retryable: bool | None = Field(
        default=None,
        description="Whether it may be retried. Default: depends on its type.",
        examples=[False],
    )
    retry_after: Duration | None = Field(
        default=None, description="The time that the other side requests to wait.", examples=["30s"]
    )
    cause: Value = Field(default=None, description="The error that caused it.", examples=[None])


class Answer(Part):
    """The result of one call of a step or tool."""

    NOUN = "an answer"
    RULES = (ExclusiveKeys(("return", "raise", "crash", "never")),)

    return_: Value = Field(
        default=None, key="return", description="The result.", examples=[{"status": 201}]
    )
    raise_: Raised | None = Field(
        default=None, key="raise", description="The error.", examples=["Timeout"]
    )
    crash: Yes | None = Field(
        default=None, description="Whether the process dies during the call.", examples=[True]
    )
    never: Yes | None = Field(
        default=None,
        description="Whether the call never returns and lasts until it is cancelled.",
        examples=[True],
    )
    after: Duration = Field(default="0s", description="The duration of the call.", examples=["2s"])
    with_: Value = Field(
        default=None,
        key="with",
        description="The expected arguments of the call. Different arguments fail the case.",
        examples=[{"to": "ana@example.com"}],
    )


class Asking(Part):
    """Input that a call requests from a person while it runs."""

    NOUN = "a request for input"
    MAIN = "message"

    message: Words = Field(description="The message.", examples=["Which seat?"])
    form: dict[str, Value] | None = Field(
        default=None,
        description="JSON Schema of the values. Default: none.",
        examples=[{"type": "object", "properties": {"seat": {"type": "string"}}}],
    )


class CallAnswer(Answer):
    """The end of one call of a step or tool: a result, or a request for input."""

    RULES = (ExclusiveKeys(("return", "raise", "crash", "never", "asks")),)

    asks: Asking | None = Field(
        default=None,
        description="The input that the call requests, as a tool of an MCP server can. It is "
        "decided on under `approvals`, and then the next answer of the list follows.",
        examples=[{"message": "Which seat?"}],
    )


class Script(CallAnswer):
    """The results of the calls of a step or tool: one for all of them, or a list in order."""

    NOUN = "a script"
    MAIN = "calls"
    RULES = (ExclusiveKeys(("calls", "return", "raise", "crash", "never", "asks")),)

    calls: list[CallAnswer] | None = Field(
        default=None,
        description="The answers in order, exactly one for each call.",
        examples=[[{"return": 1}]],
    )


class RepliedCall(Part):
    """A call in a reply of a model."""

    NOUN = "a call"
    MAIN = "name"

    name: Words = Field(description="The tool.", examples=["search"])
    arguments: Value = Field(
        default=None,
        description="Its arguments. A text is sent unchanged, even if it is not JSON.",
        examples=[{"query": "cranes"}],
    )
    id: Words | None = Field(
        default=None, description="Its id. Default: generated.", examples=["c1"]
    )


class Reply(Answer):
    """One reply of a model, or the failure of the request."""

    NOUN = "a reply"
    MAIN = "text"
    RULES = (ExclusiveKeys(("return", "raise", "crash", "never"), required=False),)

    with_: Value = Field(
        default=None,
        key="with",
        description="The expected request to the model: new `instructions`, `tools` and "
        "`messages` since the previous turn. Any other request fails the "
        "case.",
        examples=[{"messages": [{"role": "user", "content": "Hello."}]}],
    )
    text: str = Field(default="", description="The text.", examples=["There are 12."])
    calls: list[RepliedCall] = Field(
        default=[],
        description="The calls of tools.",
        examples=[[{"name": "search", "arguments": {"query": "cranes"}}]],
    )
    reasoning: str = Field(
        default="", description="The reasoning of the model.", examples=["Let me see."]
    )
    finish: Literal["stop", "length", "filtered"] = Field(
        default="stop", description="The reason why the reply ends.", examples=["length"]
    )
    usage: dict[str, Value] = Field(
        default={},
        description="The usage: `input_tokens`, `output_tokens`, `cost_usd`, …",
        examples=[{"input_tokens": 120, "output_tokens": 8}],
    )
    provider_parts: dict[str, Value] = Field(
        default={},
        description="Data for the provider only, in recorded replies.",
        examples=[{}],
    )


class Replies(Part):
    """The replies of an agent's models, in order."""

    NOUN = "the replies of a model"
    MAIN = "in_order"
    RULES = (ExclusiveKeys(("in_order",)),)

    in_order: list[Reply] = Field(
        default=[],
        description="The replies, exactly one for each request.",
        examples=[[{"text": "There are 12."}]],
    )


class CaseDecision(Part):
    """A user's decision on an approval, a question or an uncertain step."""

    NOUN = "a decision"

    after: Duration = Field(
        default="0s", description="The time since it was requested.", examples=["2d"]
    )
    by: User | None = Field(
        default=None,
        description="The user who decides. Default: the first one allowed to.",
        examples=["user:ben"],
    )
    choice: Words | None = Field(
        default=None,
        description="Id of the choice. May be omitted if there is only one.",
        examples=["approve"],
    )
    edit: dict[str, Value] | None = Field(
        default=None, description="Changes to the subject.", examples=[{"amount": 1200}]
    )
    form: Value = Field(
        default=None, description="The values of the form.", examples=[{"cost_center": "4711"}]
    )
    comment: Words | None = Field(default=None, description="Why.", examples=["too expensive"])
    value: Value = Field(
        default=None,
        description="The result, for the choice `result` of an uncertain step.",
        examples=[{"id": 7}],
    )
    attach: list[Words] = Field(default=[], description="Attached files.", examples=[["quote.pdf"]])
    refused: Yes | None = Field(
        default=None,
        description="Whether the decision must be refused, because the user is not "
        "allowed to make it.",
        examples=[True],
    )


class Decisions(CaseDecision):
    """The decisions at a step: one for every time it asks, or a list in order."""

    NOUN = "a decision"
    MAIN = "in_order"

    in_order: list[CaseDecision] | None = Field(
        default=None,
        description="The decisions in order. Each is made once.",
        examples=[[{"choice": "approve"}]],
    )


class Sending(Part):
    """A signal from outside."""

    NOUN = "a signal"

    name: SentSignal = Field(
        description="Its name, such as `agent.steer` for an agent.", examples=["paid"]
    )
    at: Duration = Field(
        default="0s", description="The time since the start of the execution.", examples=["1h"]
    )
    data: Value = Field(
        default=None, description="The data of the message.", examples=[{"amount": 3}]
    )
    key: Value = Field(default=None, description="The key of the message.", examples=["order-7"])
    by: User | None = Field(default=None, description="The sender.", examples=["user:ana"])


class Cancelling(Part):
    """A cancellation of the execution."""

    NOUN = "'cancel'"
    MAIN = "at"

    at: Duration = Field(
        default="0s", description="The time since the start of the execution.", examples=["1h"]
    )
    reason: str = Field(default="", description="Why.", examples=["not needed"])
    by: User | None = Field(default=None, description="Who.", examples=["user:ana"])
    now: bool = Field(
        default=False, description="Whether to skip `finally` and compensation.", examples=[True]
    )


class Operating(Part):
    """An operator restarts a step, as `retry` and `fork` do."""

    NOUN = "an intervention"
    RULES = (ExclusiveKeys(("retry", "fork"), required=False),)

    at: Duration = Field(
        default="0s", description="The time since the start of the execution.", examples=["1h"]
    )
    retry: Words | None = Field(
        default=None, description="Address of the step to restart.", examples=["book"]
    )
    fork: Words | None = Field(
        default=None,
        description="Address of the step that is held until then and started.",
        examples=["book"],
    )
    set: dict[str, Value] = Field(
        default={}, description="State to write.", examples=[{"limit": 100}]
    )
    by: User | None = Field(default=None, description="Who.", examples=["user:ops"])


class Case(ExpectingCase):
    """One execution of the flow, with all scripted results."""

    groups: dict[str, list[User]] = Field(
        default={},
        description="The groups of users, in addition to those of the file.",
        examples=[{"managers": ["user:ben"]}],
    )
    by: User = Field(
        default="user:test", description="The user who starts the execution.", examples=["user:ana"]
    )
    id: Words | None = Field(default=None, description="Id of the execution.", examples=["order-7"])
    at: Time = Field(
        default="2026-01-05T09:00:00Z",
        description="The time of the start.",
        examples=["2026-03-01T12:00:00Z"],
    )
    labels: dict[str, Words] = Field(
        default={}, description="Its labels.", examples=[{"team": "sales"}]
    )
    tools: dict[str, Script] = Field(
        default={},
        description=(
            "Results of calls, by the name of the tool, the id of the step, its address, "
            "or `STEP/compensate`. The most specific entry applies."
        ),
        examples=[{"mail": {"return": None}}],
    )
    agents: dict[str, Replies] = Field(
        default={},
        description=(
            "Replies of the models of agents, in order, by the name of the agent or the "
            "address of its turns. The number of requests must match."
        ),
        examples=[{"researcher": [{"calls": [{"name": "search"}]}, {"text": "There are 12."}]}],
    )
    approvals: dict[str, Decisions] = Field(
        default={},
        description="Decisions, by the id of the step or its address.",
        examples=[{"manager": {"choice": "approve"}}],
    )
    signals: list[Sending] = Field(
        default=[], description="Signals from outside.", examples=[[{"name": "paid"}]]
    )
    cancel: Cancelling | None = Field(
        default=None, description="A cancellation of the execution.", examples=["1h"]
    )
    operator: list[Operating] = Field(
        default=[],
        description="Interventions of an operator.",
        examples=[[{"at": "1h", "retry": "book"}]],
    )
    until: Duration | None = Field(
        default=None,
        description="The time since the start of the execution at which the case ends if "
        "it still waits.",
        examples=["3d"],
    )


class CaseFile(Part):
    """Test cases of a flow."""

    NOUN = "a file of test cases"

    flow: Words | None = Field(
        default=None,
        description="Path of the flow, relative to this file. Default: `NAME.yaml` for "
        "`NAME.test.yaml`.",
        examples=["./expense.yaml"],
    )
    groups: dict[str, list[User]] = Field(
        default={},
        description="The groups of users, as in the settings of the host.",
        examples=[{"managers": ["user:ben"]}],
    )
    cases: list[Case] = Field(
        min_length=1, description="The cases.", examples=[[{"name": "it works"}]]
    )
