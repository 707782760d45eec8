# Shows F72
"""Test cases of flows with agents: with scripted replies, or recorded from any run (F72)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models.port import ModelFacts
from flowengine.testing.recording import record, text_of
from flowengine.testing.suite import run_file
from tests.agents.flows import HEAD, NAME, STEPS, Case, call, flow
from tests.agents.test_agent_servers import served

ADDER = "first: {instructions: You add., tools: [add, boom]}"
SUM = """
cases:
  - name: sum
    agents:
      first:
        - {calls: [{name: add, arguments: {a: 1, b: 2}}]}
        - It is 3.
    tools: {add: [{return: 3}]}
    expect:
      path: [ask, ask/first, ask/first@1, ask/first@1/add, ask/first@2]
      outputs: {answer: It is 3., agent: first}
"""


def played(folder: Path, cases: str, text: str | None = None) -> list[str]:
    """Return the problems of a flow's test cases."""
    if text is not None:
        (folder / "flow.yaml").write_text(text)
    if not (folder / "tools.py").exists():
        (folder / "tools.py").write_text(
            "def add(a: int, b: int): 'Add.'\ndef boom(why: str): 'No.'\n"
        )
    (folder / "flow.test.yaml").write_text(cases)
    report = run_file(str(folder / "flow.test.yaml"))
    return [problem.message for outcome in report.outcomes for problem in outcome.problems]


# Shows F71
def test_a_case_has_what_models_reply(tmp_path: Path) -> None:
    assert played(tmp_path, SUM, flow(ADDER)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("        - It is 3.\n", "", "'ask/first@2' calls a model once more than agents.first has"),
        ("    agents:\n", "    labels: {a: b}\n    agents:\n", ""),
        ("It is 3.\n    tools", "It is 3.\n        - More.\n    tools", "this reply was not used"),
        ("      first:\n", "      frist:\n", "did you mean 'first'?"),
        ("{return: 3}", "{return: 3, with: {a: 2, b: 2}}", "called with other arguments"),
        ("outputs: {answer: It is 3.", "outputs: {answer: It is 4.", "outputs"),
        ("- It is 3.", "- {raise: {type: ModelError, retryable: false}}", "status"),
        (
            "- It is 3.",
            "- {text: It is 3., usage: {tokens: 3}}",
            "usage.tokens: unknown key",
        ),
        (
            """      first:
        - {calls: [{name: add, arguments: {a: 1, b: 2}}]}
        - It is 3.
""",
            "      first: {raise: ModelError}\n",
            "write a list, with one entry for each request",
        ),
        ("{a: 1, b: 2}", '"{\\"a\\": 1, \\"b\\": 2}"', ""),
    ],
)
def test_what_is_not_as_the_case_says_fails_it(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    assert old in SUM
    try:
        found = played(tmp_path, SUM.replace(old, new), flow(ADDER))
    except Exception as error:
        found = [str(error)]
    assert problem in "\n".join(found)
    assert bool(found) == bool(problem)


def test_a_model_without_replies_fails_the_case(tmp_path: Path) -> None:
    [problem] = played(tmp_path, "cases: [{name: none}]", flow(ADDER))

    assert problem == (
        "'ask/first@1' calls a model, and the case has no reply for it. "
        "Add: agents: {first: [{text: ...}]}"
    )


def test_errors_are_retried_on_virtual_time_and_fallbacks_asked(tmp_path: Path) -> None:
    agent = "first: {instructions: You add., model: [scripted/test, scripted/other]}"
    cases = """
cases:
  - name: it passes
    agents: {first: [{raise: RateLimited}, {raise: Timeout}, "3"]}
    expect: {outputs: {answer: "3"}}
  - name: for good
    agents: {first: [{raise: {type: ModelError, retryable: false}}, "3"]}
    expect: {path: [ask, ask/first, ask/first@1, ask/first@2, ask/first@3]}
  - name: the process dies
    agents: {first: [{crash: true}, "3"]}
    expect: {outputs: {answer: "3"}}
"""
    assert played(tmp_path, cases, flow(agent)) == []


def test_nobody_needs_a_model_a_key_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_MODEL", "openai/gpt-4o")
    text = flow(ADDER, head=HEAD.replace(f"defaults: {{model: {NAME}}}\n", ""))
    assert played(tmp_path, SUM, text) == []
    monkeypatch.delenv("FLOWENGINE_MODEL")


# Recorded runs


def recorded(one: Case) -> dict[str, Any]:
    with one.engine_open() as engine:
        found = record(engine, one.id, "recorded")
    assert found.differences == [], text_of(found.case)
    return found.case


BUDGET = "budget: {tokens: 2000}\n" + STEPS.strip()


@pytest.mark.parametrize("turns", [0, 1])
def test_a_request_that_a_budget_refused_by_its_estimate_is_in_the_case(
    tmp_path: Path, turns: int
) -> None:
    used = {"input_tokens": 1500, "output_tokens": 450}
    script = [{"calls": [call("add", a=1, b=2)], "usage": used}] * turns
    budget = BUDGET if turns else BUDGET.replace("2000", "100")
    one = Case(tmp_path, flow(ADDER, budget), script, facts=ModelFacts(longest_reply=1000))
    result = one.run()
    assert (result.status, result.error["type"]) == ("failed", "BudgetExceeded")
    assert len(one.model.requests) == turns

    case = recorded(one)

    raised = case["agents"]["first"][-1]["raise"]
    assert (raised["type"], len(case["agents"]["first"])) == ("BudgetExceeded", turns + 1)
    assert played(tmp_path, f"cases:\n{text_of(case)}") == []


def test_a_run_becomes_a_case_that_needs_no_model(tmp_path: Path) -> None:
    script = [
        {"calls": [call("add", "c1", a=1, b=2), call("boom", "c2", why="x"), call("ad", "c3")]},
        {"text": ""},
        {"text": "3", "usage": {"input_tokens": 9, "output_tokens": 1, "cost_usd": 0.5}},
    ]
    one = Case(tmp_path, flow(ADDER), script)
    assert one.run().status == "succeeded"

    found = recorded(one)

    first, second, third = found["agents"]["first"]
    assert [call["name"] for call in first["calls"]] == ["add", "boom", "ad"]
    assert (third["text"], third["usage"]["input_tokens"]) == ("3", 9)
    assert set(first["with"]) == {"instructions", "tools", "messages"}
    assert set(second["with"]) == set(third["with"]) == {"messages"}
    assert [message["role"] for message in second["with"]["messages"]] == ["tool"] * 3
    assert first["calls"][0]["arguments"] == {"a": 1, "b": 2}
    assert found["tools"]["add"] == [{"with": {"a": 1, "b": 2}, "return": 3}]
    assert not any("_offer" in name or "answer" in name for name in found["tools"])

    cases = f"cases:\n{text_of(found)}"
    assert played(tmp_path, cases) == []
    assert len(one.model.requests) == 3  # the model was not called again


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("You add.", "You subtract.", "instructions"),
        ("What is 1 + 2?", "What is 1 + 3?", ""),  # by default, the case contains its input
        ("tools: [add, boom]", "tools: [add]", "tools"),
        ('prompt: "${{ inputs.q }}"', 'prompt: "Hm. ${{ inputs.q }}"', "messages"),
    ],
)
def test_a_changed_prompt_or_tool_fails_at_the_first_difference(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    one = Case(tmp_path, flow(ADDER), [{"calls": [call("add", "c1", a=1, b=2)]}, {"text": "3"}])
    one.run()
    cases = f"cases:\n{text_of(recorded(one))}"
    assert old in one.path.read_text()

    found = played(tmp_path, cases, one.path.read_text().replace(old, new))

    if not problem:
        assert found == []
        return
    assert found[0].startswith("'ask/first@1' asks something else than the case expects:")
    assert problem in found[0]


def test_branches_of_what_is_generated_are_not_asked_for(tmp_path: Path) -> None:
    played(tmp_path, SUM, flow(ADDER))

    coverage = run_file(str(tmp_path / "flow.test.yaml")).coverage
    assert [coverage.name(one) for one in coverage.reported()] == ["boom: never entered"]


SERVED = """
flowengine: 1
id: f
defaults: {model: scripted/test}
tools: {github: {mcp: {command: [no-such-server]}, approval: ask}}
agents: {first: {instructions: Sort., tools: [github.get_issue, "github.c*"]}}
steps: [{id: ask, agent: first, with: {prompt: Go}}]
outputs: {answer: "${{ steps.ask.output }}"}
"""
SORTED = """
cases:
  - name: sorted
    agents:
      first:
        - calls:
            - {name: github.get_issue, arguments: {n: 7}}
            - {name: github.close, arguments: {n: 7}}
        - Done.
    tools:
      github.get_issue: [{return: open, with: {n: 7}}]
      github.close: [{return: closed, with: {n: 7}}]
    approvals: {github.get_issue: [{choice: approve}], github.close: [{choice: approve}]}
    expect:
      path:
        - ask
        - ask/first
        - ask/first@1
        - ask/first@1/first.offer
        - ask/first@2
        - ask/first@2/github.get_issue
        - ask/first@2/github
        - ask/first@3
      outputs: {answer: Done.}
"""


def test_servers_of_agents_have_the_tools_that_the_case_answers_for(tmp_path: Path) -> None:
    """No server is started. Names and globs resolve to the tools named in the case."""
    assert played(tmp_path, SORTED, SERVED) == []
    other = SORTED.replace("github.close", "github.delete")
    [problem, *_] = played(tmp_path, other, SERVED)
    assert "- ask/first@2/github" in problem  # which matches no glob of the agent


def test_a_run_with_a_server_becomes_a_case(tmp_path: Path) -> None:
    script = [
        {"calls": [call("github.get_issue", n=7), call("github.close_issue", n=7)]},
        {"text": "Done."},
    ]
    one = served(tmp_path, "[github.get_issue, 'github.c*']", script)
    assert one.run().status == "succeeded"

    found = recorded(one)

    assert {"github.get_issue", "github"} <= found["tools"].keys()
    assert played(tmp_path, f"cases:\n{text_of(found)}") == []


def test_a_script_in_a_file_is_named_as_the_flow_names_it(tmp_path: Path) -> None:
    """A case is valid on every machine, so it contains no path of the recording one."""
    (tmp_path / "replies.yaml").write_text("- {text: Hello.}\n")
    agents = "agents: {a: {model: MODEL, instructions: Greet.}}"
    steps = "steps: [{id: s, agent: a, with: {prompt: Hi.}}]"
    for model in ("scripted/replies.yaml", f"scripted/{tmp_path}/replies.yaml"):
        text = f"flowengine: 1\nid: flow\n{agents.replace('MODEL', model)}\n{steps}\n"
        (tmp_path / "flow.yaml").write_text(text)
        with Engine(None, workdir=tmp_path) as engine:
            made = record(engine, engine.run(tmp_path / "flow.yaml").execution, "recorded")

        assert made.differences == []
        assert "script: replies.yaml" in text_of(made.case)
        assert str(tmp_path) not in text_of(made.case)
