"""Files made by pandoc, weasyprint, Chromium, groff, Ghostscript and Gnumeric (`files/make.sh`)."""

from __future__ import annotations

from pathlib import Path

from flowengine_envs.documents.converting import convert

SAMPLES = Path(__file__).parents[3] / "examples" / "document_review" / "samples"


def test_what_looks_like_a_table_in_a_pdf_is_one() -> None:
    data = (SAMPLES / "invoice_nordlicht.pdf").read_bytes()  # printed by Chromium

    document = convert(data)
    assert document.tables == [
        [
            ["Leistung", "Menge", "Einzelpreis", "Betrag"],
            ["Schreibtisch, höhenverstellbar", "4", "640,00", "2.560,00"],
            ["Bürostuhl „Föhr“", "4", "315,00", "1.260,00"],
            ["Lieferung und Aufbau, Größe L", "1", "390,00", "390,00"],
            ["Gesamtbetrag", "", "", "4.210,00 EUR"],
        ]
    ]
    assert document.markdown.count("Bürostuhl") == 1
