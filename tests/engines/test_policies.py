"""Policies: rules that allow, ask about or deny calls, before a human is asked."""

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
    """Return the outcome of a call: `allow`, `ask` or `deny`."""
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


# Steps that name no tool


def inline(policies: str, step: str, more: str = "") -> str:
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
inputs:
  limit: {{type: integer, default: 5}}
  file: {{type: string, default: {Path("acted.txt").absolute()}}}
policies: {policies}
{more}
steps: [{step}]
""")
    return "flow.yaml"


ECHO = '{id: a, run: {argv: [sh, -c, "echo hello >> $0", "${{ inputs.file }}"]}, in: host}'
ACT = '{id: a, python: "acts:act", with: {n: 3}}'


@pytest.mark.parametrize(
    ("policies", "step", "expected"),
    [
        ("[{deny: 'run:*'}]", ECHO, "deny"),
        ("[{ask: 'run:*'}]", ECHO, "ask"),
        ("[{ask: '*'}, {deny: 'run:*'}]", ECHO, "deny"),
        ("[{allow: 'run:*'}, {ask: '*'}]", ECHO, "allow"),
        ("[{deny: 'python:*'}]", ECHO, "allow"),
        ("[{deny: '*', environment: host}]", ECHO, "deny"),
        ("[{deny: 'run:*', when: \"${{ args.argv[2].contains('hello') }}\"}]", ECHO, "deny"),
        ("[{deny: 'run:*', when: \"${{ args.argv[2].contains('bye') }}\"}]", ECHO, "allow"),
        ("[{deny: 'run:*', when: '${{ args.nothing == 1 }}'}]", ECHO, "ask"),
        ("[{deny: 'python:acts:*'}]", ACT, "deny"),
        ("[{deny: 'python:other:*'}]", ACT, "allow"),
        ("[{ask: 'python:*', when: '${{ args.n < inputs.limit }}'}]", ACT, "ask"),
        ("[{ask: 'python:*', when: '${{ args.n > inputs.limit }}'}]", ACT, "allow"),
        ("[{deny: 'http:*'}]", "{id: a, http: {url: 'http://127.0.0.1:1/'}}", "deny"),
        ("[{deny: '*', effect: pure}]", ACT.replace("id: a", "id: a, effect: pure"), "deny"),
    ],
)
def test_rules_hold_for_steps_that_name_no_tool(policies: str, step: str, expected: str) -> None:
    with Engine("store") as engine:
        result = engine.run(inline(policies, step))
    known = {"waiting": "ask", "succeeded": "allow", "failed": "deny"}
    assert known[result.status] == expected, result
    if expected == "deny":
        assert result.error is not None
        assert result.error["type"] == "Refused"
    assert bool(acted()) is (expected == "allow")


def test_what_is_asked_about_an_inline_step_runs_once_it_is_approved() -> None:
    with Engine("store") as engine:
        [wait] = engine.run(inline("[{ask: 'run:*'}]", ECHO)).waits
        assert wait["rule"] == "policies[0] (ask: run:*)"
        assert wait["subject"]["argv"][:3] == ["sh", "-c", "echo hello >> $0"]
        assert acted() == ""
        result = engine.approve(wait["id"]).result
    assert result is not None
    assert result.status == "succeeded"
    assert acted() == "hello\n"


def test_of_the_rules_of_flow_and_host_about_an_inline_step_the_stricter_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "flowengine" / "policies.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("policies: [{allow: '*'}]\n")
    with Engine("store") as engine:
        assert engine.run(inline("[{deny: 'run:*'}]", ECHO)).status == "failed"
        path.write_text("policies: [{deny: 'run:*'}]\n")
        assert engine.run(inline("[{allow: 'run:*'}]", ECHO)).status == "failed"
        path.write_text("policies: [{allow: 'run:*'}]\n")
        [wait] = engine.run(inline("[{ask: 'run:*'}]", ECHO)).waits
        assert engine.approve(wait["id"]).result.status == "succeeded"  # type: ignore[union-attr]
    assert acted() == "hello\n"


def test_rules_of_a_file_hold_for_inline_steps_of_files_that_it_uses() -> None:
    echo = ECHO.replace("${{ inputs.file }}", "acted.txt")
    Path("lib.yaml").write_text(f"""
flowengine: 1
id: lib
flows: {{sub: {{steps: [{echo}]}}}}
""")
    more = "imports: {lib: ./lib.yaml}"
    with Engine("store") as engine:
        for map in ("", "map: [1, 2], "):
            step = f"{{id: a, {map}flow: lib.sub}}"
            result = engine.run(inline("[{deny: 'run:*'}]", step, more))
            assert result.status == "failed"
    assert acted() == ""


# Names of environments


@pytest.mark.parametrize(
    ("environments", "tool", "expected"),
    [
        ("{prod_db: {kind: sqlite, config: {path: x.db, mode: rwc}}}", "{db: prod_db}", "failed"),
        (
            "{test_db: {kind: sqlite, config: {path: x.db, mode: rwc}}}",
            "{db: test_db}",
            "succeeded",
        ),
        (
            "{test_db: {kind: sqlite, config: {path: x.db, mode: rwc}}}",
            "{prod_db: test_db}",
            "succeeded",
        ),
        (
            "{prod_db: {kind: sqlite, config: {path: x.db},"
            " args: {type: object, properties: {n: {type: integer}}}}}",
            "{db: {prod_db: {n: 1}}}",
            "failed",
        ),
    ],
)
@pytest.mark.parametrize("whose", ["flow", "host"])
def test_a_rule_knows_an_environment_by_the_name_that_is_declared(
    whose: str,
    environments: str,
    tool: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The name of the tool's parameter does not matter."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    rules = "[{deny: '*', environment: 'prod_*'}]"
    if whose == "host":
        path = tmp_path / "config" / "flowengine" / "policies.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(f"policies: {rules}\n")
        rules = "[]"
    more = (
        f'environments: {environments}\ntools: {{t: {{python: "acts:act", environments: {tool}}}}}'
    )
    with Engine("store") as engine:
        assert engine.run(inline(rules, "{id: a, call: t}", more)).status == expected
