# Shows F15
"""The letters: a file of tools and flows that two other flows use (F15, F96)."""

from __future__ import annotations

from tests.examples.conftest import EXAMPLES, Shell

LETTERS = EXAMPLES / "letters"


# Shows F96
def test_two_flows_use_one_library(flowengine: Shell) -> None:
    inputs = ["-i", 'guests=["Ben", "Cem"]', "-i", 'silent=["Cem"]']
    invited = flowengine("--json", "run", LETTERS / "invite.yaml", *inputs).json()

    assert invited["outputs"] == {
        "letters": ["Dear Ben, come on Friday. Yours, Ana", "Dear Cem, come on Friday. Yours, Ana"],
        "reminders": [3],
    }
    thanked = flowengine("run", LETTERS / "thank.yaml", "-i", "guest=Ben")
    assert thanked.out == "text: Thank you, Ben!\n"


def test_its_own_flow_runs_too_and_all_are_sound(flowengine: Shell) -> None:
    flowengine("check", "--strict", *sorted(LETTERS.glob("*.yaml")))

    letter = ["-i", "to=Dana", "-i", "text=welcome."]
    assert flowengine("run", LETTERS / "letters.yaml", *letter).out == (
        "letter: Dear Dana, welcome. Yours, Ana\n"
    )
