# Shows G13
"""Programs that call the tools of an agent (docs/agents.md, `code`)."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models.registry import register, unregister
from flowengine.errors import FlowFileError
from tests.agents.crashes import crashed, gone_on
from tests.agents.flows import HEAD, NAME, STEPS, TOOLS, Case, call, flow
from tests.rows import each_row
from tests.testing.faulty_store import FaultyStore

BOXED = HEAD.replace("tools:", "environments: {box: {kind: python, provider: host}}\ntools:", 1)
AGENT = "first: {instructions: You add., tools: [add, boom], environments: [box], code: box}"
SUM = """
total = 0
for n in range(4):
    total = await add(total, b=n)
total
"""


def run(code: str, id: str = "p1") -> dict[str, Any]:
    return call("run_program", id, code=textwrap.dedent(code).strip())


def case(
    folder: Path,
    code: str,
    agent: str = AGENT,
    head: str = BOXED,
    more: tuple[Any, ...] = (),
    then: str = "",
) -> Case:
    """Return an agent whose model runs a program, and perhaps another one."""
    folder.mkdir(exist_ok=True)
    programs = [[run(code), *more], *([[run(then, "p2")]] if then else [])]
    script = [*({"calls": one} for one in programs), {"text": "done"}]
    return Case(folder, flow(agent, head=head), script, by_turn=True)


def told(folder: Path, code: str, **more: Any) -> str:
    """Run an agent whose model writes a program. Return the answer that the model receives."""
    made = case(folder, code, **more)
    assert made.run().status == "succeeded"
    return str(made.answers(1)[0])


def test_a_program_calls_tools_and_only_its_value_is_told(tmp_path: Path) -> None:
    made = case(tmp_path, SUM)

    assert made.run().outputs == {"answer": "done", "agent": "first"}
    assert made.called == ["add 0 0", "add 0 1", "add 1 2", "add 3 3"]
    assert made.offered(0) == ["run_program"]
    [tool] = made.model.requests[0].tools
    assert "async def add(a: int, b: int)\n    # Add two numbers." in tool.description
    assert [one["role"] for one in made.sent(1)] == ["system", "user", "assistant", "tool"]
    assert made.answers(1) == ["6"]


@each_row(
    "name, code, answer",
    [
        ("text", "'a\\nb'", "a\nb"),
        ("data", "{'a': [1, None]}", '{"a": [1, null]}'),
        ("a return", "if True:\n    return await add(1, 2)", "3"),
        ("printed", "print('so'); 1", "1\n\nIt printed:\nso\n"),
        ("several at once", "import asyncio\nawait asyncio.gather(add(1, 2), add(3, 4))", "[3, 7]"),
        ("a function", "async def twice(a):\n    return await add(a, a)\nawait twice(4)", "8"),
        (
            "a failure",
            "try:\n    await boom('x')\nexcept ToolError as e:\n    return str(e)[:31]",
            "ZeroDivisionError: division by ",
        ),
        (
            "refused arguments",
            "try:\n    await add(1)\nexcept ToolError as e:\n    return str(e)",
            "The arguments of add do not fit: is missing 'b'.",
        ),
    ],
)
def test_what_a_program_returns(tmp_path: Path, name: str, code: str, answer: str) -> None:
    assert told(tmp_path / name, code) == answer


@each_row(
    "name, code, error",
    [
        ("an error", "x = 1\n1 / 0", "ZeroDivisionError: division by zero"),
        ("no such tool", "await delete(1)", "NameError: name 'delete' is not defined"),
        ("a failed call", "await boom('x')", "ToolError: ZeroDivisionError"),
        ("no Python", "function() {}", "SyntaxError"),
        (
            "no data",
            "await add(a={1}, b=2)",
            "ToolError: the arguments of add are not JSON: Object of type set is not JSON",
        ),
        ("it exits", "import os\nos._exit(3)", "Crashed"),
        ("sys.exit", "print('so')\nraise SystemExit(3)", "SystemExit: 3\n\n\nIt printed:\nso"),
    ],
)
def test_how_a_program_fails(tmp_path: Path, name: str, code: str, error: str) -> None:
    answer = told(tmp_path / name, code)

    assert answer.startswith("Error: ")
    assert error in answer


def test_other_calls_of_the_reply_are_made_after_the_program(tmp_path: Path) -> None:
    agent = AGENT.replace("code: box", "code: {in: box, direct: [boom]}")
    made = case(tmp_path, SUM, agent, more=(call("boom", "b", why="no"), run("1", "p2")))
    made.run()

    assert made.called[-1] == "boom"
    assert made.offered(0) == ["run_program", "boom"]
    first, second, third = made.answers(1)
    assert (first, "division by zero" in second) == ("6", True)
    assert third == "Error: a reply can run one program: put both into one."


@pytest.mark.parametrize(
    "moment",
    ["random.random()", "str(uuid.uuid4())", "time.time()", "str(datetime.datetime.now())",
     "secrets.token_hex()"],
)  # fmt: skip
def test_time_and_chance_are_the_same_when_it_runs_again(tmp_path: Path, moment: str) -> None:
    head = BOXED.replace("  boom:", '  keep: {python: "tools:keep", approval: ask}\n  boom:')
    (tmp_path / "tools.py").write_text(
        f"{TOOLS}\ndef keep(value: str | float) -> None:\n    note(str(value))\n"
    )
    code = (
        f"import datetime, random, secrets, time, uuid\nawait keep({moment})\nawait keep({moment})"
    )
    made = case(tmp_path, code, AGENT.replace("[add", "[keep"), head)

    result = made.run()
    while result.waits:
        [wait] = result.waits
        with made.engine_open() as engine:
            result = engine.approvals.approve(wait["id"]).result

    assert result.status == "succeeded"
    assert not made.answers(1)[0].startswith("Error: ")
    assert len(made.called) == 2


def test_a_program_that_does_not_repeat_its_calls_is_told_so(tmp_path: Path) -> None:
    head = BOXED.replace('"tools:add"}', '"tools:add", approval: ask}')
    code = "import os\nopen('n', 'a').write('x')\nawait add(len(open('n').read()), 1)"
    made = case(tmp_path, code, head=head)

    [wait] = made.run().waits
    with made.engine_open() as engine:
        engine.approvals.approve(wait["id"])

    assert made.called == ["add 1 1"]
    [answer] = made.answers(1)
    assert answer.startswith("Error: ")
    assert "did not repeat its earlier calls" in answer


def test_a_crash_at_every_write_repeats_no_call_that_was_answered(
    tmp_path: Path, tenth: int | None
) -> None:
    head = BOXED.replace('"tools:add"}', '"tools:add", effect: idempotent}')
    calm = case(tmp_path, SUM, head=head)
    register(NAME, calm.model)
    store = FaultyStore()
    with Engine(store, workdir=tmp_path) as engine:
        assert engine.run(calm.path).status == "succeeded"
    wanted = calm.called

    for write in range(2 + (tenth or 0), store.writes, 1 if tenth is None else 10):
        folder = tmp_path / str(write)
        folder.mkdir()
        made = case(folder, SUM, head=head)
        register(NAME, made.model)
        result = gone_on(made, crashed(made, write, "die before"))
        assert result.status == "succeeded"
        assert list(dict.fromkeys(made.called)) == wanted
        assert len(made.called) <= len(wanted) + 1  # the call that was cut off
        assert made.answers(-1) == ["6"]
    unregister(NAME)


def test_hooks_rules_and_limits_apply_to_the_calls_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        f"{TOOLS}\ndef seen(tool: str, arguments: dict) -> dict | None:\n"
        "    note(f'hook {tool}')\n"
        "    return {'arguments': {**arguments, 'b': 10}} if arguments.get('b') == 1 else None\n"
    )
    head = f"{BOXED}  seen: {{python: 'tools:seen'}}\nrules: [{{deny: boom}}]\n"
    more = "code: box, hooks: [{before: call, call: seen}], limits: {calls: 3}}"
    code = """
    found = []
    for n in range(4):
        try:
            found.append(await (boom(why='x') if n == 2 else add(a=n, b=1)))
        except ToolError as error:
            found.append(str(error).partition(':')[0])
    found
    """
    made = case(tmp_path, code, AGENT.replace("code: box}", more), head)
    made.run()

    assert made.answers(1) == ['[10, 11, "Refused", 13]']
    assert made.called.count("hook run_program") == 1
    assert [one for one in made.called if one.startswith("add")] == [
        "add 0 10",
        "add 1 10",
        "add 3 10",
    ]


def test_a_handoff_beside_a_program_follows_it(tmp_path: Path) -> None:
    agents = AGENT.replace("code: box}", "code: box, handoffs: [second]}") + (
        "\nsecond: {instructions: You end it.}"
    )
    made = case(tmp_path, SUM, agents, more=(call("transfer_to_second", "h"),))

    assert made.run().outputs == {"answer": "done", "agent": "second"}
    assert made.answers(1) == ["6", "Handed over to second."]


@each_row(
    "name, agent, fault",
    [
        (
            "no such place",
            "environments: [box], code: bix",
            "E401: the agent has no environment 'bix'",
        ),
        (
            "another kind",
            "environments: [den], code: den",
            "E103: programs run in an environment of kind 'python', and 'den' is a 'bash'",
        ),
    ],
)
def test_faults_of_declarations(tmp_path: Path, name: str, agent: str, fault: str) -> None:
    head = BOXED.replace("{box:", "{den: {kind: bash, provider: host}, box:")
    text = flow(f"first: {{instructions: You add., tools: [add], {agent}}}", STEPS, head)
    (tmp_path / name).mkdir()
    made = Case(tmp_path / name, text, [])

    with pytest.raises(FlowFileError) as error:
        made.run()

    assert fault in [f"{one.code}: {one.message}" for one in error.value.diagnostics]


@each_row(
    "name, code, answer",
    [
        ("large", "[len(await rows(5000)), (await rows(3))[2]['name'][:2]]", '[5000, "xx"]'),
        ("large text", "len(await page(100_000))", "100000"),
        ("many large ones", "sum([len(await page(900_000)) for _ in range(7)])", "6300000"),
        (
            "too large",
            "len(await page(2_000_000))",
            "its result has more than 1 MiB. The call was made",
        ),
        ("like a file", "await given({'sha256': '0' * 64, 'name': 'x'})", '"name": "x"}'),
        ("like an envelope", "await given({'envelope': 'C4'})", '{"envelope": "C4"}'),
        ("nothing", "[await given(None), await given('Error: no')]", '[null, "Error: no"]'),
        ("too many digits", "await given(10**30)", "ToolError: The arguments of given do not fit"),
        (
            "endless digits",
            "await given(int('9' * 4300))",
            "ToolError: The arguments of given do not",
        ),
        ("half a character", "await given('\\ud800')", "has half a surrogate pair"),
        ("half a key", "await given({'\\ud800': 1})", "has half a surrogate pair"),
        ("a value of half a character", "'a\\ud800'", "a?"),
        ("a hook's answer", "[await add(1, 7), await add(1, 2)]", '["by hook", 3]'),
        ("printed before an end", "print('so')\nimport os\nos._exit(3)", "It printed:\nso"),
    ],
)
def test_results_and_arguments_are_those_of_the_tools(
    tmp_path: Path, name: str, code: str, answer: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "tools.py").write_text(
        f"{TOOLS}\nfrom typing import Any\ndef rows(n: int) -> list:\n"
        "    return [{'name': 'x' * 90}] * n\ndef page(n: int) -> str:\n    return 'y' * n\n"
        "def given(value: Any) -> Any:\n    return value\n"
        "def seen(tool: str, arguments: dict) -> dict | None:\n"
        "    return {'answer': 'by hook'} if arguments.get('b') == 7 else None\n"
    )
    head = BOXED + "".join(
        f"  {tool}: {{python: 'tools:{tool}'}}\n" for tool in ("rows", "page", "given", "seen")
    )
    agent = AGENT.replace("[add", "[rows, page, given, add")
    agent = agent.replace("code: box}", "code: box, hooks: [{before: call, call: seen}]}")

    assert answer in told(tmp_path / name, code, agent=agent, head=head)


def test_two_programs_share_a_box_and_no_work_is_repeated(tmp_path: Path) -> None:
    """Each runs a line with an effect once, although the other one runs in between."""
    code = "open('n', 'a').write('x')\nfor n in range(3):\n    await add(n, 1)\nopen('n').read()"
    steps = STEPS.replace("agent: first,", "map: [1, 2], agent: first,").replace(
        ', agent: "${{ steps.ask.agent }}"', ""
    )
    text = flow(AGENT, steps, BOXED.replace("{kind: python", "{scope: execution, kind: python"))
    made = Case(tmp_path, text, [{"calls": [run(code)]}, {"text": "done"}], by_turn=True)

    assert made.run().status == "succeeded"
    assert sorted(made.called) == ["add 0 1"] * 2 + ["add 1 1"] * 2 + ["add 2 1"] * 2
    assert made.answers(-1) == ["xx"]
