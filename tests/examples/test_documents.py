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
    ("name", "parts", "tables", "words"),
    [
        ("invoice_nordlicht.pdf", 2, 1, ["Bürostuhl „Föhr“", "Jürgen Weiß", "4.210,00 EUR"]),
        ("invoice_cafe_zoe.pdf", 1, 1, ["Buffet « déjeuner d'équipe »", "confiance"]),
        ("service_contract.docx", 0, 1, ["Ørsted", "| Watering, May to September | 20 | 2,400.00"]),
        ("board_workshop.pptx", 3, 1, ["façade", "Mention the grant", "„Große Flamme“ | 14,250"]),
        ("order_confirmation.html", 0, 1, ["Dvořák & Syn", "Toner “Schwarz” | 2 | € 131.60"]),
        ("price_list.csv", 0, 1, ["Preisliste Möbelhaus Größwang", "| 149,00"]),
    ],
)
def test_text_and_tables_come_out_of_every_format(
    name: str, parts: int, tables: int, words: list[str]
) -> None:
    document = convert((SAMPLES / name).read_bytes(), name)

    assert (len(document.parts), len(document.tables)) == (parts, tables)
    assert [word for word in words if word not in document.markdown] == []


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


def test_samples_are_all_named_above_and_small() -> None:
    files = sorted(SAMPLES.iterdir())

    assert len(files) == 10
    assert all(file.stat().st_size < 100_000 for file in files)


@each_row(
    ("line", "dates"),
    [
        ("Date: 2026-10-14", ["2026-10-14"]),
        ("Datum: 02.11.2026", ["2026-11-02"]),
        ("14/10/2026", ["2026-10-14"]),
        ("14 October 2026", ["2026-10-14"]),
        ("3. März 2026", ["2026-03-03"]),
        ("October 14, 2026", ["2026-10-14"]),
        ("le 5 février 2026", ["2026-02-05"]),
        ("31.02.2026", []),
        ("Order 20261014 of 12-2026", []),
    ],
)
def test_dates_are_found_as_people_write_them(line: str, dates: list[str]) -> None:
    assert checks.dates(line) == dates


@each_row(
    ("line", "found"),
    [
        ("Total 1,234.56 EUR", [(1234.56, "EUR")]),
        ("Summe 1.234,56 €", [(1234.56, "EUR")]),
        ("Total: 9 060,00 SEK", [(9060.0, "SEK")]),
        ("$1,200", [(1200.0, "USD")]),
        ("48'500.00 CHF", [(48500.0, "CHF")]),
        ("in 2026, on page 3", []),
        ("Total on 14.10.2026: 12.50", [(12.5, "")]),
        ("4 visits, 20 % off", []),
    ],
)
def test_amounts_are_found_as_people_write_them(line: str, found: list[tuple[float, str]]) -> None:
    assert checks.amounts(line) == found


def test_a_subtotal_is_no_total() -> None:
    read = text("Date 2026-01-02\nSubtotal 100.00 EUR\nVAT 19.00 EUR\nTotal 119.00 EUR")

    checked = checks.check(read, threshold=1000.0, today="2026-01-03")

    assert (checked["facts"]["total"], checked["findings"]) == (119.0, [])


def test_rows_that_do_not_add_up_to_their_total_are_a_finding() -> None:
    table = [["Item", "Amount"], ["A", "10.00"], ["B", "5.00"], ["Total", "16.00"]]
    read = {"text": "2026-01-02", "tables": [table], "problem": ""}

    findings = checks.check(read, threshold=1000.0, today="2026-01-03")["findings"]

    assert findings == ["The rows of a table add up to 15.00, not 16.00."]


def test_a_document_holds_on_its_last_day() -> None:
    read = text("Dated 2026-01-02\nValid until 2026-03-01")

    assert checks.check(read, threshold=1.0, today="2026-03-01")["findings"] == []
    assert checks.check(read, threshold=1.0, today="2026-03-02")["findings"] != []


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
