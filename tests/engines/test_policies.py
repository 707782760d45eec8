"""Policies: rules that allow, ask about or deny calls, before people are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import FlowFileError

FUNCTIONS = """
def act(n=0, **more):
    with open("acted.txt", "a") as file:
        file.write(f"{n} ")
    return n
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("acts.py").write_text(FUNCTIONS)


def acted() -> str:
    file = Path("acted.txt")
    return file.read_text() if file.exists() else ""


def flow(policies: str, approval: str = "none", args: str = "{n: 1}", tool: str = "get") -> str:
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
inputs: {{limit: {{type: integer, default: 5}}}}
policies: {policies}
tools:
  get:
    python: "acts:act"
    args: {{properties: {{n: {{type: integer}}, to: {{type: string}}}}}}
    approval: {approval}
  put: {{python: "acts:act", effect: idempotent}}
steps: [{{id: a, call: {tool}, with: {args}}}]
""")
    return "flow.yaml"


def outcome(*given: Any, **more: Any) -> str:
    """What becomes of a call: `allow`, `ask` or `deny`."""
    with Engine("store") as engine:
        result = engine.run(flow(*given, **more))
    if result.status == "waiting":
        return "ask"
    if result.status == "succeeded":
        return "allow"
    assert result.error is not None
    assert result.error["type"] == "Refused", result.error
    return "deny"


@pytest.mark.parametrize(
    ("policies", "approval", "expected"),
    [
        ("[]", "none", "allow"),
        ("[]", "ask", "ask"),
        ("[{allow: get}]", "ask", "allow"),
        ("[{allow: get}]", "required", "ask"),
        ("[{ask: get}]", "none", "ask"),
        ("[{deny: get}]", "none", "deny"),
        ("[{deny: get}]", "required", "deny"),
        ("[{allow: 'ge*'}, {ask: '*'}]", "none", "allow"),
        ("[{ask: '*'}, {allow: 'ge*'}]", "none", "ask"),
        ("[{allow: '*'}, {deny: 'python:*'}]", "none", "deny"),
        ("[{deny: 'shell:*'}, {ask: put}]", "none", "allow"),
        ("[{allow: 'g?t'}, {ask: '[a-z]*'}]", "ask", "allow"),
        ("[{ask: '*', effect: idempotent}]", "none", "allow"),
        ("[{ask: '*', effect: once}]", "none", "ask"),
        ("[{deny: '*', agent: triage}]", "none", "allow"),
        ("[{deny: '*', environment: 'prod_*'}]", "none", "allow"),
        ("[{deny: '*', when: '${{ args.n > inputs.limit }}'}]", "none", "allow"),
        ("[{deny: '*', when: '${{ args.n < inputs.limit }}'}]", "none", "deny"),
        ("[{allow: '*', when: '${{ args.n == 1 }}'}, {ask: '*'}]", "ask", "allow"),
        ("[{allow: '*', when: '${{ args.n == 2 }}'}, {ask: '*'}]", "none", "ask"),
        ("[{allow: '*', when: '${{ execution.flow == \"it\" }}'}]", "ask", "allow"),
    ],
)
def test_the_first_rule_that_fits_counts_and_those_that_deny_come_first(
    policies: str, approval: str, expected: str
) -> None:
    assert outcome(policies, approval) == expected
    assert acted() == ("1 " if expected == "allow" else "")


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ("[{allow: get, when: '${{ args.to == \"x\" }}'}]", "ask"),
        ("[{deny: get, when: '${{ args.to == \"x\" }}'}]", "ask"),
        ("[{deny: get, when: '${{ args.to == \"x\" }}'}, {allow: '*'}]", "ask"),
        ("[{deny: get, when: '${{ args.to == \"x\" }}'}, {deny: '*'}]", "deny"),
        ("[{allow: '*'}, {deny: get, when: '${{ args.to == \"x\" }}'}]", "ask"),
        ("[{allow: '*'}, {allow: get, when: '${{ args.to == \"x\" }}'}]", "allow"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_asks(policies: str, expected: str) -> None:
    assert outcome(policies) == expected


def test_the_question_says_which_rule_asks() -> None:
    rule = "{ask: get, when: '${{ args.to == \"x\" }}'}"
    with Engine("store") as engine:
        [wait] = engine.run(flow(f"[{{allow: put}}, {rule}]")).waits
        assert wait["rule"] == "policies[1] (ask: get), which cannot be evaluated"
        result = engine.approve(wait["id"]).result
    assert result is not None
    assert result.status == "succeeded"
    assert acted() == "1 "


def test_what_a_rule_asks_about_runs_as_it_was_shown() -> None:
    with Engine("store") as engine:
        [wait] = engine.run(flow("[{ask: put}]", tool="put")).waits
        assert (wait["tool"], wait["subject"]) == ("put", {"n": 1})
        assert engine.respond(wait["id"], 7).result is not None
        [wait] = engine.run("flow.yaml").waits
        engine.reject(wait["id"])
    assert acted() == ""


def test_a_refusal_names_the_rule_and_is_routed() -> None:
    path = Path(flow("[{deny: get}]"))
    text = path.read_text().replace(
        "with: {n: 1}}",
        'with: {n: 1}, on_error: [{type: Refused, output: "${{ error.message }}"}]}',
    )
    path.write_text(text + 'outputs: {o: "${{ steps.a.output }}"}\n')
    with Engine("store") as engine:
        outputs = engine.run(str(path)).outputs
    assert outputs == {"o": "'get' was not called: policies[0] (deny: get) refuses it"}


def test_built_in_tools_and_flows_as_tools_are_subject_to_rules() -> None:
    Path("flow.yaml").write_text("""
flowengine: 1
id: it
policies: [{deny: "std.write_*"}, {ask: inner}]
tools: {inner: {flow: sub}}
flows: {sub: {steps: [{id: s, call: std.write_file, with: {path: x, text: y}}]}}
steps: [{id: a, call: inner}]
""")
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
        result = engine.approve(wait["id"]).result
    assert result is not None
    assert result.error is not None
    assert "policies[0] (deny: std.write_*)" in str(result.error)
    assert not Path("x").exists()


def library(policies: str) -> None:
    Path("lib.yaml").write_text(f"""
flowengine: 1
id: lib
policies: {policies}
tools: {{get: {{python: "acts:act"}}}}
flows: {{sub: {{steps: [{{id: s, call: get, with: {{n: 1}}}}]}}}}
""")


@pytest.mark.parametrize(
    ("own", "callers", "expected"),
    [
        ("[]", "[]", "allow"),
        ("[{deny: get}]", "[]", "deny"),
        ("[]", "[{deny: lib.get}]", "deny"),
        ("[]", "[{deny: get}]", "allow"),
        ("[]", "[{ask: 'lib.*'}]", "ask"),
        ("[{allow: get}]", "[{ask: 'python:lib.*'}]", "ask"),
        ("[{ask: get}]", "[{allow: '*'}]", "ask"),
        ("[{ask: get}]", "[{deny: '*', when: '${{ inputs.n == 3 }}'}]", "deny"),
    ],
)
def test_rules_of_callers_also_hold_and_the_stricter_counts(
    own: str, callers: str, expected: str
) -> None:
    library(own)
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
inputs: {{n: {{type: integer, default: 3}}}}
tools: {{get: {{python: "acts:act"}}}}
imports: {{lib: ./lib.yaml}}
policies: {callers}
steps: [{{id: a, flow: lib.sub}}]
""")
    with Engine("store") as engine:
        result = engine.run("flow.yaml")
    found = {"waiting": "ask", "succeeded": "allow", "failed": "deny"}[result.status]
    assert found == expected


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ("[{deny: got}]", "there is no tool 'got'"),
        ("[{deny: 'shel:*'}]", "there is no kind of tool 'shel'"),
        ("[{deny: get, ask: put}]", "ask"),
        ("[{when: '${{ true }}'}]", "allow"),
        ("[{deny: get, when: '${{ args.n + 1 }}'}]", "bool|true or false"),
        ("[{deny: get, when: '${{ steps.a.output }}'}]", "steps"),
        ("[{deny: get, when: '${{ inputs.nothing == 1 }}'}]", "nothing"),
        ("[{deny: get, effect: sometimes}]", "sometimes"),
        ("{deny: get}", "list"),
    ],
)
def test_rules_are_checked_before_anything_runs(policies: str, message: str) -> None:
    with Engine("store") as engine, pytest.raises(FlowFileError, match=message):
        engine.run(flow(policies))
    assert acted() == ""


def test_a_library_cannot_name_inputs_in_its_rules() -> None:
    library("[{deny: get, when: '${{ inputs.n == 1 }}'}]")
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: it\nimports: {lib: ./lib.yaml}\nsteps: [{id: a, flow: lib.sub}]\n"
    )
    with Engine("store") as engine, pytest.raises(FlowFileError, match="inputs"):
        engine.run("flow.yaml")
