"""A value of a declared type arrives as that type, whichever way it takes."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

from flowengine import Agent, Engine, Flow, cel
from flowengine.agents.function_schemas import function_to_json
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import FlowFileError, InputError
from flowengine.runner import MetaChain
from flowengine.server.problems import as_json
from tests.nodes.typed_cases import ALONE, CASES, NAMES, SHOWN, WRITTEN, source
from tests.rows import each_row
from tests.server.api import Api

_NUMBERS = itertools.count()


@pytest.fixture
def module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with two functions for each case, which make and check its value."""
    module = f"typed_cases_{next(_NUMBERS)}"
    (folder / f"{module}.py").write_text(source())
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module(module)
    del sys.modules[module]


def run(flow: Flow, inputs: Any = None) -> Any:
    """Return the error of an execution."""
    with Engine(None) as engine:
        return engine.run(flow, inputs).error


def hints(module: ModuleType) -> dict[str, Any]:
    return {
        name: get_type_hints(getattr(module, f"take_{name}"), include_extras=True)["value"]
        for name in WRITTEN
    }


def values(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, f"make_{name}")() for name in WRITTEN}


def taking(module: ModuleType) -> Flow:
    """Return a flow whose inputs are the values, and that checks each."""
    flow = Flow("taking", inputs=hints(module))
    for name in WRITTEN:
        flow.step(getattr(module, f"take_{name}"), with_={"value": cel.inputs[name]})
    flow.output("all", {name: cel.inputs[name] for name in WRITTEN})
    return flow


@pytest.mark.endurance
def test_from_step_to_step_and_across_a_restart_and_as_an_edit(module: ModuleType) -> None:
    flow = Flow("between")
    made = [flow.step(getattr(module, f"make_{name}")) for name in NAMES]
    for name in NAMES:
        flow.step(
            getattr(module, f"take_{name}"), with_={"value": cel.steps[f"make_{name}"].output}
        )
    subject = {name: step.output for name, step in zip(NAMES, made, strict=True)}
    body = f"Content: {made[0].output}"  # declared as bytes, which are text in expressions
    ask = flow.step(
        "ask", approval={"title": "?", "body": body, "subject": subject, "edit": WRITTEN}
    )
    for name in NAMES:
        flow.step(getattr(module, f"again_{name}"), with_={"value": ask.output.subject[name]})

    with Engine("store", durability="none") as engine:
        result = engine.run(flow)
        assert result.error is None
    assert set(module.GOT) == set(NAMES)
    assert result.waits[0]["body"] == "Content: /wBh"
    module.GOT.clear()
    with Engine("store", durability="none") as engine:
        [wait] = engine.approvals.list().items
        decided = engine.approvals.approve(wait["id"], edit=values(module)).result
        assert decided is not None
        assert decided.error is None
    assert set(module.GOT) == set(NAMES)


def as_sent(module: ModuleType) -> dict[str, Any]:
    """Return the values in the form of JSON, as the server and models write them."""
    flow = Flow("writing")
    for name in NAMES:
        flow.output(name, flow.step(getattr(module, f"make_{name}")).output)
    with Engine(None) as engine:
        result = engine.run(flow)
    assert result.error is None
    sent: dict[str, Any] = json.loads(as_json(result.outputs))
    return sent


@pytest.mark.endurance
def test_as_inputs_from_python_and_over_http(module: ModuleType, tmp_path: Path) -> None:
    flow = taking(module)
    api = Api(tmp_path, ())
    try:
        native = api.engine.run(flow, values(module), id="one")
        assert native.error is None
        assert api.engine.run(flow, values(module), id="one").execution == "one"
        assert set(module.GOT.values()) == {1}
        api.engine.flows.deploy(api.engine.load(flow))
        sent = {name: value for name, value in as_sent(module).items() if name in WRITTEN}
        started = api("POST", "/v1/executions", {"flow": "taking", "inputs": sent}, code=201)
        read = api.engine.resume(started["execution"])
        assert read.error is None
        assert set(module.GOT.values()) == {2}
    finally:
        api.close()


@pytest.mark.endurance
def test_as_arguments_of_an_agents_tool(module: ModuleType) -> None:
    sent = as_sent(module)
    tools = [getattr(module, f"take_{name}") for name in SHOWN]
    calls = [{"name": f"take_{name}", "arguments": {"value": sent[name]}} for name in SHOWN]
    with using(ScriptedModel([{"calls": calls}, {"text": "done"}])):
        found = MetaChain().run(Agent(functions=tools), [{"role": "user", "content": "Go"}])
    answers = [one["content"] for one in found.messages if one["role"] == "tool"]
    assert set(module.GOT) == set(SHOWN), [text for text in answers if text]


@pytest.mark.endurance
def test_as_an_agents_answer(module: ModuleType) -> None:
    sent = as_sent(module)
    hints = {hint: name for name, (hint, _) in zip(NAMES, CASES, strict=True)}
    # A TypedDict of `typing`, which pydantic refuses before Python 3.12, with every type in it.
    answers = {"Everything": {name: sent[name] for name in SHOWN}}
    answers |= {hint: sent[hints[hint]] for hint in ALONE}
    script = [{"text": json.dumps(answer)} for answer in answers.values()]
    with using(ScriptedModel(script)):
        for hint, answer in answers.items():
            agent = Agent(returns=eval(hint, vars(module)))
            found = MetaChain().run(agent, [{"role": "user", "content": "Go"}]).output
            assert type(found) is not str, (hint, answer, found)
            parts = found if hint == "Everything" else {hints[hint]: found}
            for name, value in parts.items():
                module.check(name, value, getattr(module, f"make_{name}")())
    assert set(module.GOT) == set(SHOWN)


REFUSED = """
import socket
from collections.abc import Callable
from typing import Any
CALLED = []
def keys() -> dict[tuple[int, int], str]: CALLED.append(1)
def inside() -> list[dict[str, dict[None, str]]]: CALLED.append(1)
def taken(value: dict[tuple[int, int], str]) -> None: CALLED.append(1)
def connect() -> socket.socket: CALLED.append(1)
def many() -> list[socket.socket]: CALLED.append(1)
def pair() -> tuple[int, socket.socket]: CALLED.append(1)
def callback() -> Callable[[], int]: CALLED.append(1)
"""


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("keys", "the result could not be kept: a map cannot have keys of the type tuple"),
        ("inside", "the result could not be kept: a map cannot have keys of the type none"),
        ("taken", "the parameter 'value' of taken cannot be given: a map cannot have keys"),
        ("connect", "refused:connect was not called, because it returns a socket.socket"),
        ("many", "refused:many was not called, because it returns a socket.socket"),
        ("pair", "refused:pair was not called, because it returns a socket.socket"),
        ("callback", "refused:callback was not called, because it returns a collections.abc.Call"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_the_call(
    function: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refused.py").write_text(REFUSED)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("refused")
    flow = Flow("refusing", inputs={"value": dict})
    flow.step(getattr(module, function))
    error = run(flow, {"value": {}})
    called = list(module.CALLED)
    del sys.modules["refused"]
    assert error["message"].startswith(fault)
    assert called == []


def looping() -> Any:
    value: dict[str, Any] = {"a": [1]}
    value["a"].append(value)
    return value


def keyed() -> dict[str | int, int]:
    return {1: 2, "1": 3}


def test_a_result_whose_keys_are_the_same_as_text_is_not_kept() -> None:
    flow = Flow("keyed")
    flow.step(keyed)
    message = "the result cannot be kept: two keys of a map are the same as text"
    assert run(flow)["message"] == message


class Currency(Enum):
    EUR = "eur"
    USD = "usd"


def priced() -> dict[Currency, Decimal]:
    return {Currency.EUR: Decimal("1.50")}


def test_a_map_is_replaced_by_an_edit_whose_keys_are_checked() -> None:
    flow = Flow("pricing")
    subject = {"prices": flow.step(priced).output}
    ask = flow.step("ask", approval={"title": "?", "subject": subject, "edit": True})
    flow.output("prices", ask.output.subject.prices)
    with Engine(None) as engine:
        [wait] = engine.run(flow).waits
        with pytest.raises(InputError, match='"gbp", which must be one of "eur", "usd"'):
            engine.approvals.approve(wait["id"], edit={"prices": {"gbp": "1"}})
        decided = engine.approvals.approve(
            wait["id"], edit={"prices": {Currency.USD: Decimal("2.0")}}
        )
    assert decided.result is not None
    assert decided.result.outputs == {"prices": {"usd": "2.0"}}


@each_row(
    ("value", "fault"),
    [
        (looping(), "input 'value' cannot be used: it is nested more than 200 levels deep"),
        (
            {"a": [1, object()]},
            "input 'value'.a[1] cannot be used: a value of type builtins.object",
        ),
        ({"a": {(1, 2): 3}}, "input 'value'.a cannot be used: the key (1, 2) of a map is tuple"),
        ({1: 2, "1": 3}, "input 'value' cannot be used: two keys of a map are the same as text"),
        (iter([1]), "input 'value' cannot be used: a value of type builtins.list_iterator"),
        ([float("nan")], "input 'value'[0] is not a number, which is not JSON"),
        (
            {"a": (1, float("inf"))},
            "input 'value'.a[1] cannot be used: inf is not a number in JSON",
        ),
    ],
)
def test_an_input_without_a_plain_form_is_refused(value: Any, fault: str) -> None:
    flow = Flow("plain", inputs={"value": {}})
    flow.step("a", output=cel.inputs.value)
    with pytest.raises(InputError) as refused:
        run(flow, {"value": value})
    assert refused.value.message.startswith(fault)
    assert refused.value.field.startswith("value")


def test_values_in_with_reach_the_function_as_its_types(module: ModuleType) -> None:
    """The plain form of a value that a built flow contains is that of the flow's file."""
    flow = Flow("containing")
    for name, value in values(module).items():
        flow.step(getattr(module, f"take_{name}"), with_={"value": value})
    assert run(flow) is None
    assert set(module.GOT) == set(WRITTEN)


def test_computed_fields_are_known_and_so_is_what_is_not(module: ModuleType) -> None:
    flow = Flow("computed")
    total = flow.step(module.make_total)
    flow.output("whole", total.output.wholePrice)
    with Engine(None) as engine:
        assert engine.run(flow).outputs == {"whole": "3.0"}

    kept = flow.step(module.make_kept)
    flow.output("wrong", kept.output.cod)
    with pytest.raises(FlowFileError, match=r"did you mean 'steps.make_kept.output.code'"):
        flow.compile()


RULES = """
import re
from dataclasses import InitVar, dataclass
from pydantic import BaseModel
@dataclass
class Whole:
    part: int
    rest: InitVar[int]
    def __post_init__(self, rest): self.sum = self.part + rest
class Loose(BaseModel):
    values: dict
GOT = []
def add(whole: Whole) -> int: return GOT.append(whole.sum)
def find() -> re.Pattern: return re.compile("(?m)^b$", re.IGNORECASE)
def matches(rule: re.Pattern) -> None: GOT.append(bool(rule.search("a\\nB\\n")))
def of_bytes() -> re.Pattern: return re.compile(b"a")
def numbered() -> Loose: return Loose(values={"a": {1: 2}})
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Functions with values that differ from their plain form, or that have none."""
    (tmp_path / "value_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("value_rules")
    del sys.modules["value_rules"]


def test_a_model_is_asked_for_values_that_a_dataclass_does_not_keep(rules: ModuleType) -> None:
    calls = [{"name": "add", "arguments": {"whole": {"part": 1, "rest": 2}}}]
    with using(ScriptedModel([{"calls": calls}, {"text": "done"}])):
        Agent(tools=[rules.add]).run("Go")
    assert rules.GOT == [3]
    shown = function_to_json(rules.add)["function"]["parameters"]["properties"]["whole"]
    assert shown["required"] == ["part", "rest"]


def test_a_regular_expression_keeps_its_flags(rules: ModuleType) -> None:
    flow = Flow("finding")
    found = flow.step(rules.find)
    flow.step(rules.matches, with_={"rule": found.output})
    flow.output("rule", found.output)
    with Engine(None) as engine:
        result = engine.run(flow)
    assert (result.error, result.outputs, rules.GOT) == (None, {"rule": "(?im)^b$"}, [True])


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("of_bytes", "a regular expression of bytes has no text form: use one of text"),
        ("numbered", "the key 1 of a map is int, not text"),
    ],
)
def test_a_result_that_would_arrive_as_another_is_not_kept(
    rules: ModuleType, function: str, fault: str
) -> None:
    flow = Flow("losing")
    flow.step(getattr(rules, function))
    assert run(flow)["message"] == f"the result cannot be kept: {fault}"


SECRETS = """
from pydantic import BaseModel, SecretBytes, SecretStr
class Account(BaseModel):
    name: str
    word: SecretStr
def make() -> Account: return Account(name="ana", word="hunter22")
def take(account: Account) -> str: return account.word.get_secret_value()
def key(key: SecretBytes) -> str: return key.get_secret_value().decode()
"""


def test_a_secret_that_was_stored_as_asterisks_is_not_read_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "accounts.py").write_text(SECRETS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("accounts")
    flow = Flow("passing", inputs={"account": module.Account})
    flow.step(module.take)
    assert run(flow, {"account": {"name": "ana", "word": "hunter22"}}) is None
    given = run(flow, {"account": module.make()})
    flow = Flow("keys", inputs={"key": module.SecretBytes})
    flow.step(module.key)
    assert run(flow, {"key": "aHVudGVyMjI="}) is None
    masked = run(flow, {"key": module.SecretBytes(b"hunter22")})
    flow = Flow("making")
    flow.step(module.take, with_={"account": flow.step(module.make).output})
    made = run(flow)
    del sys.modules["accounts"]
    for error in (given, masked, made):
        assert "is a secret of pydantic, which was stored as asterisks" in error["message"]


def endless(limit: float = float("inf"), share: float = float("-inf"), most: int = 2**70) -> float:
    return min(limit, share, most)


def test_a_default_that_json_lacks_is_not_shown_to_the_model() -> None:
    [parameters] = [function_to_json(endless)["function"]["parameters"]]
    assert parameters["properties"] == {
        "limit": {"type": "number"},
        "share": {"type": "number"},
        "most": {"type": "integer"},
    }
    json.dumps(parameters, allow_nan=False)


MISFITS = {
    "value: HttpUrl": ("no url", "must be a URL such as https://example.com/a, not "),
    "value: list[HttpUrl]": (["y"], "must be a URL such as https://example.com/a, not "),
    "value: AwareDatetime": ("2026-01-02T03:04:05", "must be a date-time with an offset, as in "),
    "value: NaiveDatetime": ("2026-01-02T03:04:05Z", "must be a date-time without an offset, "),
    "value: UUID4": ("9c2b0c1e-7d4a-11f0-9c55-0a6f1d2e3b4c", "must be a UUID of version 4, not "),
    "value: IPvAnyNetwork": ("x", "must be an IP network such as 192.0.2.0/24, not "),
    "value: condecimal(gt=1)": (True, "must be "),
    "value: conlist(UUID4, max_length=1)": (["x"], "must be a UUID of version 4, not "),
    "value: conbytes(min_length=2)": (5, "must be text, not 5"),
    "value: Json": (6, "must be text, not 6"),
    "**others: int": ("x", "must be a whole number, not "),
    "other: int = 1, **others: HttpUrl": ("x", "must be a URL such as https://example.com/a, not "),
    "**others: Unpack[Options]": ("x", "must be a date-time such as 2026-11-25T09:14:02Z, not "),
    "**others: 'Unpack[Options]'": ({"a": 1}, "must be text, not "),
}
"""Parameters → a value that does not fit, and why."""
SHOWN_BY_THE_CALL = {
    "value: condecimal(max_digits=3)": (
        "1.2345",
        "decimal input should have no more than 3 digits",
    ),
    "value: FutureDate": ("2001-01-01", "date should be in the future"),
    "value: HttpUrl": ("ftp://example.com", "URL scheme should be 'http' or 'https'"),
    "value: Json": ("{", "invalid JSON"),
}
"""Likewise, for what a JSON Schema cannot say."""


def test_values_that_do_not_fit_are_refused_before_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [*MISFITS.items(), *SHOWN_BY_THE_CALL.items()]
    text = (
        "from __future__ import annotations\nfrom pydantic import *\nfrom pydantic import UUID4\n"
    )
    text += "from typing import TypedDict\nfrom typing_extensions import NotRequired, Unpack\n"
    text += "CALLED = []\nclass Options(TypedDict):\n    value: NotRequired[AwareDatetime]\n"
    names = "AwareDatetime, FutureDate, HttpUrl, IPvAnyNetwork, Json, NaiveDatetime, conbytes"
    text = text.replace("import *", f"import {names}, condecimal, conlist")
    for number, (parameters, _) in enumerate(cases):
        text += f"def f{number}({parameters}) -> None:\n    CALLED.append({number})\n"
    (tmp_path / "misfits.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("misfits")
    functions = [getattr(module, f"f{number}") for number in range(len(cases))]
    values = [value for _, (value, _) in cases]

    checked = Flow("checked")
    for function, value in zip(functions, values, strict=True):
        checked.step(function, with_={"value": value})
    with pytest.raises(FlowFileError) as caught:
        run(checked)
    messages = [each.message for each in caught.value.diagnostics]
    assert len(messages) == len(MISFITS)
    ran = []
    for function, value in zip(functions, values, strict=True):
        flow = Flow("run", inputs={"value": Any})
        flow.step(function, with_={"value": cel.inputs.value})
        ran.append(run(flow, {"value": value})["message"])
    calls = [
        {"name": f"f{number}", "arguments": {"value": value}} for number, value in enumerate(values)
    ]
    with using(ScriptedModel([{"calls": calls}, {"text": "done"}])):
        found = MetaChain().run(Agent(functions=functions), [{"role": "user", "content": "Go"}])
    told = [one["content"] for one in found.messages if one["role"] == "tool"]
    del sys.modules["misfits"]

    reasons = [reason for _, (_, reason) in cases]
    for reason, *shown in zip(reasons, ran, told, strict=True):
        assert all(reason in text for text in shown), (reason, shown)
    for reason in reasons[: len(MISFITS)]:
        assert any(reason in message for message in messages), reason
    assert module.CALLED == []
