"""The expense approval with a stand-in for the ledger, as used by Ana and Ben."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.conftest import EXAMPLES, Shell

EXPENSE = EXAMPLES / "expense" / "expense.yaml"
SECRETS = {"ERP_TOKEN": "t0ken-of-the-ledger", "MAIL_PASSWORD": "pa55word-of-the-mail"}


@pytest.fixture
def office(
    flowengine: Shell, group: Callable[[str, list[str]], None]
) -> Iterator[Callable[..., list[str]]]:
    """A folder with a receipt, managers and a ledger. Returns the command that starts a flow."""
    group("managers", ["ana", "ben"])
    (flowengine.folder / "receipt.txt").write_text("1,250.00")
    flowengine.env |= SECRETS
    ledger = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "expense" / "ledger.py"), "0"],
        cwd=flowengine.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ledger.stdout is not None
    address = ledger.stdout.readline().split()[-1]

    def command(amount: float) -> list[str]:
        inputs = {
            "employee": "ana@example.com",
            "amount": amount,
            "purpose": "Train to the client",
            "receipt": "receipt.txt",
            "erp": address,
        }
        (flowengine.folder / "expense.json").write_text(json.dumps(inputs))
        return ["run", str(EXPENSE), "-i", "@expense.json"]

    with ledger:
        yield command
        ledger.terminate()


def enter_for_ana(flowengine: Shell) -> None:
    """Start the flow like a service that knows its users. Ana has no account on this system."""
    service = (
        "import json, sys; from flowengine import Engine\n"
        "with Engine(user='user:ana', linger=0) as engine:\n"
        "    print(engine.run(sys.argv[1], json.load(open('expense.json'))).status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", service, EXPENSE],
        cwd=flowengine.folder,
        env=flowengine.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "waiting\n"


def written(folder: Path, name: str) -> list[dict[str, Any]]:
    file = folder / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_small_amounts_are_booked_without_asking(
    flowengine: Shell, office: Callable[..., list[str]]
) -> None:
    done = flowengine(*office(49.5))

    assert done.out == "booked: true\n"
    [entry] = written(flowengine.folder, "ledger.jsonl")
    assert (entry["amount"], entry["cost_center"]) == (49.5, "4711")


@pytest.mark.endurance
# Shows F4
def test_a_manager_lowers_the_amount_and_it_is_booked_so(
    flowengine: Shell, office: Callable[..., list[str]]
) -> None:
    office(1250)
    enter_for_ana(flowengine)
    [wait] = flowengine.waits().values()

    assert "file        receipt.txt\n" in flowengine("approvals", "show", wait["id"]).out
    form = ["--form", "cost_center=4711"]
    flowengine("approve", wait["id"], "--as", "user:ana", *form, code=8)  # her own request
    ben = ["--as", "user:ben", "--edit", "amount=1200"]
    wrong = flowengine("approve", wait["id"], *ben, "--form", "cost_center=47", code=3)
    done = flowengine("approve", wait["id"], *ben, "--form", "cost_center=0815")

    assert "cost_center" in wrong.err
    assert done.out.endswith("booked: true\n")
    [entry] = written(flowengine.folder, "ledger.jsonl")
    assert (entry["amount"], entry["cost_center"]) == (1200, "0815")
    [mail] = written(flowengine.folder, "outbox.jsonl")
    assert mail == {"to": "ana@example.com", "text": "Your expense was booked."}


@pytest.mark.endurance
def test_a_rejection_needs_a_comment_and_is_told(
    flowengine: Shell, office: Callable[..., list[str]]
) -> None:
    office(1250)
    enter_for_ana(flowengine)
    [wait] = flowengine.waits().values()

    flowengine("reject", wait["id"], "--as", "user:ben", code=3)
    done = flowengine("reject", wait["id"], "--as", "user:ben", "--comment", "Not this year.")

    assert done.out.endswith("booked: false\n")
    assert written(flowengine.folder, "ledger.jsonl") == []
    [mail] = written(flowengine.folder, "outbox.jsonl")
    assert mail["text"] == "Your expense was not approved."
