"""The document review as its user runs it, with a process per command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flowengine.settings import current_user
from tests.examples.conftest import EXAMPLES, Shell

REVIEW = EXAMPLES / "document_review" / "review.yaml"
DOUBTFUL = ["invoice_scan.pdf", "service_contract.docx", "travel_quote.html"]
SOUND = ["price_list.csv"]
# Of the others, `test_documents.py` shows the findings: reading each takes a process.


@pytest.fixture
def inbox(flowengine: Shell) -> Path:
    """The user's inbox, with the samples and a file of another kind."""
    folder = flowengine.folder / "inbox"
    folder.mkdir()
    for name in (*DOUBTFUL, *SOUND):
        shutil.copy(EXAMPLES / "document_review" / "samples" / name, folder)
    (folder / "notes.txt").write_text("buy milk")
    return folder


def wait_for(waits: dict[str, dict[str, Any]], name: str) -> str:
    [found] = [wait["id"] for title, wait in waits.items() if title.startswith(name)]
    assert isinstance(found, str)
    return found


@pytest.mark.usefixtures("inbox")
# Shows F1
def test_only_doubtful_documents_wait_and_each_moves_by_its_own_answer(flowengine: Shell) -> None:
    run = flowengine("--json", "run", REVIEW, "-i", "folder=inbox", code=4).json()
    waits = flowengine.waits()

    assert run["status"] == "waiting"
    assert sorted(title.split(": ")[0] for title in waits) == DOUBTFUL
    assert not (flowengine.folder / "review.md").exists()

    quote = wait_for(waits, "travel_quote")
    edit = ["--edit", "date=2026-11-03", "--comment", "They told me on the phone."]
    flowengine("approve", quote, *edit, "--as", "user:ben", code=4)
    flowengine("reject", wait_for(waits, "invoice_scan"), code=3)
    flowengine("reject", wait_for(waits, "invoice_scan"), "--comment", "Unreadable.", code=4)

    assert len(flowengine.waits()) == 1

    flowengine("approve", "--all", "--batch", "documents", "--no-resume")
    done = flowengine("--json", "resume", run["execution"]).json()

    assert done["status"] == "succeeded"
    assert done["outputs"] == {
        "report": "review.md",
        "sound": SOUND,
        "approved": [name for name in DOUBTFUL if name != "invoice_scan.pdf"],
        "rejected": ["invoice_scan.pdf"],
    }
    page = (flowengine.folder / "review.md").read_text()
    assert "| travel_quote.html | 2026-11-03 | 9,060.00 SEK | approved by user:ben |" in page
    assert "| date | (none) | 2026-11-03 |" in page
    assert "> They told me on the phone." in page
    assert f"Rejected by {current_user()} at" in page
    assert "Not read: inbox/notes.txt." in page
