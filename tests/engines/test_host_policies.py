"""Host policies: they apply to the calls of all flows, and are checked right before each call."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines import policy_files
from flowengine.engines.results import ExecutionResult
from flowengine.errors import FlowFileError
from flowengine.journal.encoding import pack, unpack

FUNCTIONS = """
import flowengine
def act(n=0, **more):
    with open("acted.txt", "a") as file:
        file.write(f"{n} ")
    return n
@flowengine.quick
def pure(n: int) -> int:
    with open("acted.txt", "a") as file:
        file.write(f"{n} ")
    return n
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("acts.py").write_text(FUNCTIONS)


def acted() -> str:
    file = Path("acted.txt")
    return file.read_text() if file.exists() else ""


def host(*rules: str, where: str = "config/flowengine") -> Path:
    """Write the user's rules, or the project's."""
    path = Path(where) / "policies.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(["policies:\n", *(f"  - {rule}\n" for rule in rules)]))
    return path


def flow(
    approval: str = "none", policies: str = "[]", step: str = "{id: a, call: get, with: {n: 1}}"
) -> str:
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
policies: {policies}
tools:
  get: {{python: "acts:act", approval: {approval}}}
  put: {{python: "acts:act", effect: idempotent}}
  pure: {{python: "acts:pure", effect: pure}}
steps: [{step}]
""")
    return "flow.yaml"


def run(*given: Any, **more: Any) -> ExecutionResult:
    with Engine("store") as engine:
        return engine.run(flow(*given, **more))


def outcome(result: ExecutionResult) -> str:
    """Return the outcome of a call: `allow`, `ask` or `deny`."""
    if result.status == "waiting":
        return "ask"
    if result.status == "succeeded":
        return "allow"
    assert result.error is not None
    assert result.error["type"] == "Refused", result.error
    return "deny"


@pytest.mark.parametrize(
    ("rule", "approval", "policies", "expected"),
    [
        ("{allow: get}", "none", "[]", "allow"),
        ("{allow: get}", "ask", "[]", "allow"),
        ("{allow: get}", "required", "[]", "ask"),
        ("{allow: get}", "none", "[{ask: get}]", "ask"),
        ("{allow: get}", "none", "[{deny: get}]", "deny"),
        ("{ask: get}", "none", "[]", "ask"),
        ("{ask: get}", "none", "[{allow: get}]", "ask"),
        ("{ask: get}", "none", "[{deny: get}]", "deny"),
        ("{deny: get}", "none", "[]", "deny"),
        ("{deny: get}", "none", "[{allow: get}]", "deny"),
        ("{deny: get}", "required", "[{ask: get}]", "deny"),
        ("{deny: put}", "none", "[]", "allow"),
        ("{deny: 'python:*'}", "none", "[]", "deny"),
        ("{deny: '*', effect: idempotent}", "none", "[]", "allow"),
        ("{deny: '*', agent: '*'}", "none", "[]", "allow"),
        ("{deny: '*', environment: '*'}", "none", "[]", "allow"),
        ("{deny: '*', when: '${{ args.n == 1 }}'}", "none", "[]", "deny"),
        ("{deny: '*', when: '${{ args.n == 2 }}'}", "none", "[]", "allow"),
        ("{deny: '*', when: '${{ execution.flow == \"it\" }}'}", "none", "[]", "deny"),
        ("{allow: '*', when: '${{ args.other == 2 }}'}", "none", "[]", "ask"),
    ],
)
def test_of_what_the_host_and_the_flow_say_the_stricter_counts(
    rule: str, approval: str, policies: str, expected: str
) -> None:
    host(rule)
    assert outcome(run(approval, policies)) == expected
    assert acted() == ("1 " if expected == "allow" else "")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("{deny: 'acts:act'}", "deny"),
        ("{deny: 'python:acts:*'}", "deny"),
        ("{ask: 'acts:act'}", "ask"),
        ("{deny: 'acts:pure'}", "allow"),
        ("{deny: 'acts'}", "allow"),
    ],
)
def test_a_rule_knows_a_function_by_its_path_whatever_the_flow_calls_it(
    rule: str, expected: str
) -> None:
    host("{allow: get}", rule) if "deny" in rule else host(rule)
    assert outcome(run()) == expected
    assert acted() == ("1 " if expected == "allow" else "")


@pytest.mark.parametrize("rule", ["{deny: std.write_file}", "{deny: 'std.write*'}"])
@pytest.mark.parametrize("whose", ["host", "flow"])
def test_a_rule_about_a_built_in_tool_holds_under_every_name_of_it(rule: str, whose: str) -> None:
    """This includes imported files that define yet another name."""
    host(rule) if whose == "host" else None
    Path("lib.yaml").write_text(
        "flowengine: 1\nid: lib\ntools: {put: {std: write_file, bind: {path: acted.txt}}}\n"
    )
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
imports: {{lib: lib.yaml}}
policies: [{rule if whose == "flow" else "{allow: '*'}"}]
tools: {{note: {{std: write_file, bind: {{path: acted.txt}}}}}}
steps:
  - {{id: a, call: note, with: {{text: a}}, on_error: [{{type: Refused, output: no}}]}}
  - {{id: b, call: lib.put, with: {{text: b}}, on_error: [{{type: Refused, output: no}}]}}
outputs: {{got: "${{{{ [steps.a.output, steps.b.output] }}}}"}}
""")
    with Engine("store") as engine:
        result = engine.run("flow.yaml")
    assert result.outputs == {"got": ["no", "no"]}
    assert acted() == ""


def test_of_its_rules_those_that_deny_come_first_then_the_first_that_fits() -> None:
    host("{allow: '*'}", "{ask: get}", "{deny: put}")
    assert outcome(run()) == "allow"
    assert outcome(run(step="{id: a, call: put}")) == "deny"


def test_the_user_and_the_project_may_both_have_rules_and_the_stricter_counts() -> None:
    host("{allow: '*'}")
    host("{ask: get}", where=".flowengine")
    result = run()
    [wait] = result.waits
    assert wait["rule"] == str(Path(".flowengine/policies.yaml").absolute()) + (
        ": policies[0] (ask: get)"
    )


@pytest.mark.parametrize("rule", ["{allow: get}", "{allow: '*'}", "{allow: 'python:*'}"])
def test_rules_of_the_project_allow_nothing(rule: str) -> None:
    """Otherwise a program that writes to the project could answer the host's questions."""
    host(rule, where=".flowengine")
    assert outcome(run("ask")) == "ask"
    host(rule, "{ask: '*'}", where=".flowengine")
    assert outcome(run()) == "allow"
    assert acted() == "1 "


@pytest.mark.parametrize("where", ["config/flowengine", "flow"])
def test_an_exception_in_the_project_hides_no_question_of_others(where: str) -> None:
    """An `allow` in the project before its own `ask` is an exception to that rule only."""
    host("{allow: get}", "{ask: '*'}", where=".flowengine")
    asks = "[]" if where != "flow" else "[{ask: get}]"
    host("{ask: get}", where=where) if where != "flow" else None
    assert outcome(run(policies=asks)) == "ask"
    assert acted() == ""


def test_a_step_that_plants_rules_in_the_project_is_still_asked() -> None:
    Path("acts.py").write_text(
        f"{FUNCTIONS}\ndef write():\n    import pathlib\n"
        "    path = pathlib.Path('.flowengine/policies.yaml')\n"
        "    path.parent.mkdir(exist_ok=True)\n"
        "    path.write_text(\"policies: [{allow: '*'}]\")\n"
    )
    step = "{id: w, python: 'acts:write'}, {id: a, call: get, with: {n: 1}}"
    assert outcome(run("ask", step=step)) == "ask"
    assert Path(".flowengine/policies.yaml").exists()
    assert acted() == ""


def test_rules_of_the_machine_count_as_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine.engines.engine.MACHINE_FOLDER", "etc/flowengine")
    host("{allow: get}", where="etc/flowengine")
    assert outcome(run("ask")) == "allow"
    host("{deny: get}")
    assert outcome(run("ask")) == "deny"


def test_a_refusal_names_the_rule_and_is_routed() -> None:
    path = host("{deny: get}").absolute()
    step = '{id: a, call: get, on_error: [{type: Refused, output: "${{ error.message }}"}]}'
    text = Path(flow(step=step)).read_text()
    Path("flow.yaml").write_text(text + 'outputs: {o: "${{ steps.a.output }}"}\n')
    with Engine("store") as engine:
        outputs = engine.run("flow.yaml").outputs
    assert outputs == {"o": f"'get' was not called: {path}: policies[0] (deny: get) refuses it"}


def test_what_people_approve_runs_once_with_what_they_saw() -> None:
    host("{ask: get}")
    with Engine("store") as engine:
        [wait] = engine.run(flow()).waits
        assert (wait["tool"], wait["subject"], wait["title"]) == ("get", {"n": 1}, "Call 'get'?")
        assert acted() == ""
        result = engine.approve(wait["id"]).result
    assert result is not None
    assert result.status == "succeeded"
    assert acted() == "1 "


def test_another_process_approves_and_goes_on() -> None:
    host("{ask: get}")
    [wait] = run().waits
    done = subprocess.run(
        [sys.executable, "-m", "flowengine", "--store", "store", "approve", wait["id"]],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert acted() == "1 "


def test_rules_hold_in_subflows_imported_files_maps_and_inline_steps() -> None:
    host("{deny: 'python:*'}")
    Path("lib.yaml").write_text("""
flowengine: 1
id: lib
tools: {get: {python: "acts:act"}}
""")
    Path("flow.yaml").write_text("""
flowengine: 1
id: it
imports: {lib: ./lib.yaml}
flows: {sub: {steps: [{id: s, call: lib.get}]}}
defaults: {}
steps:
  - {id: a, flow: sub, on_error: continue}
  - {id: b, call: lib.get, on_error: continue}
  - {id: c, python: "acts:act", on_error: continue}
  - {id: d, map: "${{ [1, 2] }}", call: lib.get, on_error: continue}
  - {id: e, group: [{id: f, call: lib.get}], on_error: continue}
""")
    with Engine("store") as engine:
        result = engine.run("flow.yaml")
        errors = {
            step["address"]: (step["error"] or {}).get("type")
            for step in engine.show(result.execution)["steps"]
        }
    assert acted() == ""
    refused = [address for address, type in errors.items() if type == "Refused"]
    assert {"a/s", "b", "c", "d[0]", "e/f"} <= {*refused}


def test_commands_and_inline_tools_have_rules_by_kind_and_by_what_they_run() -> None:
    host("{deny: 'run:*'}", "{ask: 'python:acts:act'}")
    assert outcome(run(step="{id: a, run: echo hello, in: host}")) == "deny"
    [wait] = run(step='{id: a, python: "acts:act", with: {n: 4}}').waits
    assert (wait["tool"], wait["subject"]) == ("acts:act", {"n": 4})


def test_what_a_condition_sees_of_a_command_is_what_the_step_says() -> None:
    host("{deny: 'run:*', when: \"${{ args.script.contains('rm ') }}\"}")
    assert outcome(run(step="{id: a, run: rm x, in: host}")) == "deny"
    assert outcome(run(step="{id: a, run: echo x, in: host}")) == "allow"


def test_no_secret_is_in_a_question_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "c4n4ry")
    host("{ask: send}")
    Path("flow.yaml").write_text("""
flowengine: 1
id: it
secrets: {KEY: {env: SOME_KEY}}
tools: {send: {python: "acts:act", bind: {key: "Bearer ${{ secrets.KEY }}"}}}
steps: [{id: a, call: send, with: {n: 1}}]
""")
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
        assert wait["subject"] == {"n": 1, "key": "Bearer ***"}
        assert b"c4n4ry" not in b"".join(
            file.read_bytes() for file in Path("store").rglob("*") if file.is_file()
        )
        engine.approve(wait["id"])
    assert acted() == "1 "


# Changed meanwhile


def test_a_rule_that_denies_since_the_call_was_approved_stops_it() -> None:
    [wait] = run("required").waits
    host("{deny: get}")
    with Engine("store") as engine:
        result = engine.approve(wait["id"]).result
    assert result is not None
    assert outcome(result) == "deny"
    assert result.error is not None
    assert result.error["data"]["policy_changed"] is True
    assert acted() == ""


def test_a_call_that_was_approved_stays_so_where_a_rule_now_asks() -> None:
    [wait] = run("ask").waits
    host("{ask: get}")
    with Engine("store") as engine:
        engine.approve(wait["id"])
    assert acted() == "1 "


def test_what_only_a_rule_allowed_is_asked_about_once_the_rule_is_gone() -> None:
    """An `allow` counts only as long as its rule is unchanged when the call starts."""
    path = host("{allow: get}")
    Path("flow.yaml").write_text("""
flowengine: 1
id: it
environments: {db: {kind: sqlite, approval: ask, config: {path: x.db}}}
tools: {get: {python: "acts:act", approval: ask, environments: {db: db}}}
steps: [{id: a, call: get, with: {n: 1}}]
""")
    sqlite3.connect("x.db").close()
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
        assert wait["environment"] == "db"
        path.write_text("policies: []\n")
        result = engine.approve(wait["id"]).result
        assert result is not None
        [wait] = result.waits
        assert (wait["tool"], acted()) == ("get", "")
        result = engine.approve(wait["id"]).result
        assert result is not None
        assert result.status == "succeeded", result
    assert acted() == "1 "


def test_a_file_that_appears_or_goes_while_an_engine_is_open_counts_at_once() -> None:
    with Engine("store") as engine:
        assert outcome(engine.run(flow())) == "allow"
        path = host("{deny: get}")
        assert outcome(engine.run(flow())) == "deny"
        path.write_text("policies:\n  - {ask: get}\n")
        assert outcome(engine.run(flow())) == "ask"
        path.unlink()
        assert outcome(engine.run(flow())) == "allow"


def test_a_file_that_a_step_writes_counts_for_the_step_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy_files, "ABSENT_SECONDS", 3600.0)
    rules = Path("config/flowengine/policies.yaml")
    rules.parent.mkdir(parents=True)
    Path("acts.py").write_text(
        f"{FUNCTIONS}\ndef write():\n    with open({str(rules)!r}, 'w') as file:\n"
        "        file.write('policies: [{deny: get}]')\n"
    )
    step = "{id: w, python: 'acts:write'}, {id: a, call: get, with: {n: 1}}"

    assert outcome(run(step=step)) == "deny"
    assert acted() == ""


def test_quick_pure_steps_are_looked_at_like_others() -> None:
    step = "{id: a, call: pure, with: {n: 1}}, {id: b, call: pure, with: {n: 2}}"
    assert outcome(run(step=step)) == "allow"
    assert acted() == "1 2 "
    host("{ask: pure, when: '${{ args.n == 2 }}'}")
    assert outcome(run(step=step)) == "ask"
    assert acted() == "1 2 1 "


# Broken


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'policies:' is missing"),
        ("- {deny: get}\n", "'policies:' is missing"),
        ("policies: {deny: get}\n", "policies.yaml:1:11: error[E103]"),
        ("policies:\n  - {denny: get}\n", "policies.yaml:2:6: error[E102]"),
        ("policies:\n  - {deny: get, when: '${{ inputs.x }}'}\n", "E301"),
        ("policies:\n  - {deny: get, when: '${{ args. }}'}\n", "E30"),
        ("policies:\n  - {deny: 'pyton:*'}\n", "there is no kind of tool 'pyton'"),
        ("policies:\n  - {deny: 'flow:*'}\n", "only makes further calls"),
        ("policies:\n  - {deny: get\n", "E101"),
        ("policies:\n  - {deny: get, allow: get}\n", "E10"),
        ("policies: []\nmore: 1\n", "E102"),
    ],
)
def test_a_broken_file_is_an_error_at_its_place_and_nothing_begins(text: str, message: str) -> None:
    host().write_text(text)
    with Engine("store") as engine:
        with pytest.raises(FlowFileError, match=r"policies\.yaml") as caught:
            engine.run(flow())
        assert engine.executions().items == []
    assert message in str(caught.value)
    assert acted() == ""


def test_a_file_that_breaks_while_people_think_refuses_the_call() -> None:
    with Engine("store") as engine:
        [wait] = engine.run(flow("ask")).waits
        path = host("{deny: get")
        with pytest.raises(FlowFileError):
            engine.approve(wait["id"])
        assert acted() == ""
        path.write_text("policies: []\n")
        assert engine.resume(wait["execution"]).status == "succeeded"
    assert acted() == "1 "


def test_a_file_that_cannot_be_read_is_never_a_yes() -> None:
    path = Path("config/flowengine/policies.yaml")
    path.mkdir(parents=True)
    with Engine("store") as engine, pytest.raises(Exception, match="cannot read"):
        engine.run(flow())
    assert acted() == ""


def test_check_finds_what_is_wrong_in_a_policy_file(capsys: pytest.CaptureFixture[str]) -> None:
    from flowengine.cli.program import main

    path = host("{deny: 'pyton:*'}")
    assert main(["check", str(path)]) == 3
    assert "policies.yaml:2:12: error[E401]: there is no kind of tool 'pyton'" in (
        capsys.readouterr().err
    )
    host("{deny: 'python:*'}")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: ok\n"


def test_check_warns_of_a_project_s_rule_that_allows(capsys: pytest.CaptureFixture[str]) -> None:
    from flowengine.cli.program import main

    path = host("{deny: 'python:*'}", "{allow: '*'}", where=".flowengine")
    assert main(["check", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: ok\n"
    assert f"{path}:3:6: warning[W418]: a project's rules only restrict" in err
    assert main(["check", "--strict", str(path)]) == 3


def test_why_names_the_rule_that_asks() -> None:
    host("{ask: get}")
    with Engine("store") as engine:
        result = engine.run(flow())
        [reason] = engine.why(result.execution)
    assert "(asked by " in reason["what"]
    assert "policies[0] (ask: get))" in reason["what"]


# Rules are compiled once for a store

RUN = """
import sys
from flowengine.cli.program import main
code = main(["--store", "store", "-q", "run", "flow.yaml"])
slow = [one for one in ("yaml", "pydantic", "flowengine.flow.compile") if one in sys.modules]
print(code, *slow)
"""


def run_alone() -> list[str]:
    """Run the flow in a new process, and return its exit code and loaded modules."""
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout.split()


@pytest.mark.endurance
def test_unchanged_rules_are_not_compiled_again() -> None:
    path = host('{deny: "get", when: "${{ args.n > 5 }}"}')
    flow(step="{id: a, call: get, with: {n: 9}}")
    first = run_alone()
    assert first[1:] == ["yaml", "pydantic", "flowengine.flow.compile"]
    assert run_alone() == [first[0]]
    assert acted() == ""

    path.write_text(path.read_text().replace("> 5", "> 10"))
    assert run_alone()[0] == "0"
    assert acted() == "9 "


@pytest.mark.parametrize(
    "kept",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"\x82\xa5rules\xc0\xabexpressions\x90",
        b"\x82\xa5rules\x91\x90\xabexpressions\x90",
    ],
)
def test_damaged_rules_in_the_store_are_compiled_again(kept: bytes) -> None:
    host('{deny: "get"}')
    assert outcome(run()) == "deny"
    _keep(kept)

    assert outcome(run()) == "deny"
    assert acted() == ""
    assert _kept() != kept


def test_rules_that_somebody_else_put_into_the_store_are_not_believed() -> None:
    host('{deny: "get"}')
    assert outcome(run()) == "deny"
    kept = unpack(_kept())
    none = pack({"rules": [], "expressions": []}).hex()
    _keep(pack({**kept, "compiled": none}))

    assert outcome(run()) == "deny"
    assert acted() == ""
    assert unpack(_kept()) == kept


def _keep(kept: bytes) -> None:
    with sqlite3.connect("store/flowengine.db") as database:
        changed = database.execute(
            "UPDATE sources SET extra = ? WHERE hash = 'policies'", (kept,)
        ).rowcount
    database.close()
    assert changed == 1


def _kept() -> bytes:
    database = sqlite3.connect("store/flowengine.db")
    try:
        [(extra,)] = database.execute("SELECT extra FROM sources WHERE hash = 'policies'")
    finally:
        database.close()
    found: bytes = extra
    return found
