"""Agents on a real small model, by the command line. Only `make small-model` runs this.

The output of such a model is unpredictable, so nothing here depends on it: there is a counted
answer, a schema holds, calls have the arguments that their tool declares, and a run that is killed
during a reply can be resumed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.conftest import PROGRAM, Shell

MODEL = "openai/smollm2"
OUTCOMES = ("resolved", "not_resolved", "max_turns")
SERVE = Path(__file__).with_name("serve.py")
TOOLS = """\
from pathlib import Path

def upper(word: str, times: int = 1) -> str:
    \"\"\"Write a word in capitals.\"\"\"
    assert type(word) is str and type(times) is int
    with Path("calls").open("a") as calls:
        print(word, times, file=calls)
    return word.upper() * times
"""
FLOW = """\
flowengine: 1
id: small
{tools}
agents:
  guide:
    instructions: {instructions}
    settings: {{temperature: 0, max_tokens: {longest}}}
{keys}
steps:
  - id: answer
    agent: guide
    with: {{prompt: {prompt}}}
    next: {{outcome: {{resolved: end, not_resolved: end, max_turns: end}}}}
outputs: {{answer: "${{{{ steps.answer.output }}}}", outcome: "${{{{ steps.answer.outcome }}}}"}}
"""


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of the model."""
    python = os.environ["SMALL_MODEL_PYTHON"]
    with subprocess.Popen(
        [python, str(SERVE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"{process.stdout.readline().strip()}/v1"
        process.stdin.close()
        process.kill()


class User(Shell):
    """A user in a folder with the flow, whose model requests go to the server."""

    def __init__(self, folder: Path, server: str) -> None:
        super().__init__(folder)
        self.env |= {"OPENAI_API_BASE": server, "OPENAI_API_KEY": "none"}

    def write(
        self, instructions: str, prompt: str, *keys: str, tools: str = "", longest: int = 60
    ) -> None:
        (self.folder / "tools.py").write_text(TOOLS)
        text = FLOW.format(
            tools=tools,
            instructions=instructions,
            prompt=prompt,
            longest=longest,
            keys="\n".join(f"    {key}" for key in keys),
        )
        (self.folder / "small.yaml").write_text(text)

    def run(self) -> Any:
        """Run the flow to its end, and return its outputs."""
        return self("--json", "run", "small.yaml", "--model", MODEL).json()["outputs"]


@pytest.fixture
def user(tmp_path: Path, server: str) -> User:
    return User(tmp_path, server)


def test_an_answer_is_there_and_counted(user: User) -> None:
    user.write("Answer in one sentence.", "What is the capital of France?")

    outputs = user.run()

    assert outputs["outcome"] == "resolved"
    assert outputs["answer"].strip()
    [turn] = [
        step for step in user("--json", "show").json()["steps"] if step["address"] == "answer/guide"
    ]
    usage = turn["output"]["usage"]
    assert usage["input_tokens"] > 10
    assert 0 < usage["output_tokens"] <= 60
    assert not usage.get("estimated")


def test_the_server_holds_an_answer_to_its_schema(user: User) -> None:
    properties = "{city: {type: string}, sure: {type: boolean}}"
    returns = f"returns: {{type: object, properties: {properties}, required: [city, sure]}}"
    user.write("Name the city.", "Paris lies on the Seine.", returns)

    outputs = user.run()

    assert outputs["outcome"] == "resolved"
    assert {name: type(value) for name, value in outputs["answer"].items()} == {
        "city": str,
        "sure": bool,
    }


@pytest.mark.parametrize("calling", ["native", "text"])
def test_whatever_it_makes_of_tools_the_run_ends_in_an_outcome(calling: str, user: User) -> None:
    user.write(
        "Call the tool upper with the word that the user gives.",
        "'The word is: cat'",
        "tools: [upper]",
        "max_turns: 4",
        f"function_calling: {calling}",
        tools="tools: {upper: {python: 'tools:upper'}}",
    )

    outputs = user.run()

    assert outputs["outcome"] in OUTCOMES


def test_a_run_that_is_killed_in_the_middle_of_a_reply_goes_on(user: User) -> None:
    user.write("Tell a long story.", "Begin.", "max_turns: 1", longest=300)

    command = [str(PROGRAM), "run", "small.yaml", "--model", MODEL, "-v"]
    with subprocess.Popen(
        command, cwd=user.folder, env=user.env, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "answer/guide" in line and "running" in line:
                break
        process.kill()
    [begun] = user("--json", "list").json()
    resumed = user("--json", "resume", begun["execution"]).json()

    assert resumed["outputs"]["outcome"] in OUTCOMES
