"""Reading, checking and reporting of the document review, without the engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from flowengine_envs.documents.converting import convert
from tests.rows import each_row

REVIEW = Path(__file__).parents[2] / "examples" / "document_review"
SAMPLES = REVIEW / "samples"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"document_review_{name}", REVIEW / f"{name}.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


checks = module("checks")
report = module("report")


def text(content: str) -> dict[str, object]:
    return {"text": content, "tables": [], "problem": ""}


def read(name: str) -> dict[str, object]:
    document = convert((SAMPLES / name).read_bytes(), name)
    return {"text": document.markdown, "tables": document.tables, "problem": ""}


@each_row(
    ("name", "finding"),
    [
        ("board_workshop.pptx", "Its total of 48,500.00 EUR is above 10,000.00."),
        ("invoice_nordlicht.pdf", "It states different totals: 4,120.00 EUR and 4,210.00 EUR."),
        ("invoice_scan.pdf", "It contains no text and may be a scan."),
        ("service_contract.docx", "It expired on 2025-03-31."),
        ("travel_quote.html", "It has no date."),
        ("expenses_october.csv", None),
        ("invoice_cafe_zoe.pdf", None),
        ("lease_lindström.docx", None),
        ("order_confirmation.html", None),
        ("price_list.csv", None),
    ],
)
def test_every_sample_is_doubtful_or_sound_as_intended(name: str, finding: str | None) -> None:
    checked = checks.check(read(name), threshold=10000.0, today="2026-11-20")

    assert checked["findings"] == ([finding] if finding else [])


def test_the_report_says_who_decided_what_and_what_they_corrected() -> None:
    facts = {"date": "", "valid_until": "", "total": 9060.0, "currency": "SEK"}
    decision = {
        "choice": "approve",
        "by": "user:ben",
        "at": "2026-11-20T10:02:11Z",
        "comment": "They told me | on the phone.",
        "original": facts,
        "subject": facts | {"date": "2026-11-03"},
    }
    quote = {"file": "quote.html", "facts": decision["subject"], "findings": ["It has no date."]}
    sound: dict[str, object] = {"file": "a.csv", "facts": facts, "findings": [], "decision": None}

    page = report.render("in", "2026-11-20", [sound, quote | {"decision": decision}], ["x.txt"])

    assert "| quote.html | 2026-11-03 | 9,060.00 SEK | approved by user:ben |" in page
    assert "| a.csv |  | 9,060.00 SEK | sound |" in page
    assert "| date | (none) | 2026-11-03 |" in page
    assert "> They told me | on the phone." in page
    assert "Not read: x.txt." in page
