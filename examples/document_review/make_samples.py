"""Generate the sample documents, each with a program that typically writes such files.

The samples are committed, so the example runs without this. It requires Chromium on the `PATH`
(Debian: `apt-get install chromium fonts-dejavu`) and the packages of the extra `documents`.

    python examples/document_review/make_samples.py

The HTML and CSV samples are written by hand and are not changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import docx
import pptx
from pptx.util import Inches, Pt

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
SAMPLES = HERE / "samples"


def chromium(profile: Path, *arguments: str) -> None:
    """Run Chromium without a window and without using the network.

    Args:
        profile: An empty directory for the browser's profile.
        arguments: The action and the page.

    Raises:
        SystemExit: Chromium is not installed, or failed.
    """
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not on the PATH (on Debian: apt-get install chromium)")
    quiet = ["--disable-gpu", "--disable-quic", "--disable-background-networking"]
    quiet += ["--no-first-run", "--disable-component-update", "--disable-sync"]
    command = [program, "--headless", "--no-sandbox", *quiet, f"--user-data-dir={profile}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"chromium failed:\n{done.stderr}")


def print_pdf(profile: Path, page: Path, target: Path) -> None:
    """Print a page to PDF, like the browser's print dialog."""
    chromium(profile, "--no-pdf-header-footer", f"--print-to-pdf={target}", page.as_uri())


def scan(profile: Path, page: Path, target: Path) -> None:
    """Make a PDF that is only an image of a page, like a scanner without text recognition."""
    picture = profile / "scan.png"
    shot = [f"--screenshot={picture}", "--window-size=900,700", "--hide-scrollbars"]
    chromium(profile, *shot, page.as_uri())
    sheet = profile / "sheet.html"
    sheet.write_text(f'<title>Scan</title><img width="100%" src="{picture.name}">')
    print_pdf(profile, sheet, target)


def contract(target: Path) -> None:
    """Write a service contract with a table of fees, which ended in the spring of 2025."""
    page = docx.Document()
    page.add_heading("Service contract 2023/08", level=1)
    page.add_paragraph("Dated 3 April 2023")
    page.add_paragraph(
        "between Atelier Ørsted ApS, København, and Gärtnerei Grünwald e. K., Flensburg, on the "
        "care of the roof garden at Nørregade 7."
    )
    page.add_heading("Fees", level=2)
    fill(
        page.add_table(rows=4, cols=3, style="Light Grid Accent 1"),
        [
            ["Service", "Visits a year", "Amount a year"],
            ["Pruning and weeding", "8", "1,920.00 EUR"],
            ["Watering, May to September", "20", "2,400.00 EUR"],
            ["Total", "28", "4,320.00 EUR"],
        ],
    )
    page.add_heading("Term", level=2)
    page.add_paragraph("This contract is valid until 31 March 2025. It is not renewed by itself.")
    page.save(str(target))


def lease(target: Path) -> None:
    """Write a lease without findings."""
    page = docx.Document()
    page.add_heading("Lease of the workshop at Møllevej 2", level=1)
    page.add_paragraph("Dated 1 September 2026")
    page.add_paragraph("Landlord: Lindström & Söner AB. Tenant: Atelier Ørsted ApS.")
    fill(
        page.add_table(rows=4, cols=2, style="Light Grid Accent 1"),
        [
            ["Due each month", "Amount"],
            ["Rent, 64 m²", "1,150.00 EUR"],
            ["Heating and water", "180.00 EUR"],
            ["Total", "1,330.00 EUR"],
        ],
    )
    page.add_paragraph("The lease is valid until 31 August 2046.")
    page.save(str(target))


def deck(target: Path) -> None:
    """Write three slides for a board, with a large requested sum."""
    slides = pptx.Presentation()
    cover = slides.slides.add_slide(slides.slide_layouts[0])
    cover.shapes.title.text = "Workshop extension"
    cover.placeholders[1].text = "Board meeting, 12 November 2026\nBirgit Sørensen"

    why = slides.slides.add_slide(slides.slide_layouts[1])
    why.shapes.title.text = "Why now"
    why.placeholders[1].text = (
        "The kiln runs at 96 % of its capacity\n"
        "Two orders were declined in October\n"
        "Neighbours agree to the new façade"
    )
    why.notes_slide.notes_text_frame.text = "Mention the grant: decision expected in spring."

    cost = slides.slides.add_slide(slides.slide_layouts[5])
    cost.shapes.title.text = "What it costs"
    rows = [
        ["Item", "Amount"],
        ["Building", "31,000.00 EUR"],
        ["Kiln „Große Flamme“", "14,250.00 EUR"],
        ["Permits", "3,250.00 EUR"],
        ["Total", "48,500.00 EUR"],
    ]
    frame = cost.shapes.add_table(5, 2, Inches(1), Inches(1.8), Inches(8), Inches(3))
    fill(frame.table, rows)
    for cell in frame.table.iter_cells():
        cell.text_frame.paragraphs[0].font.size = Pt(20)
    slides.save(str(target))


def fill(table: object, rows: list[list[str]]) -> None:
    """Put texts into a table of a document or a slide."""
    for y, row in enumerate(rows):
        for x, text in enumerate(row):
            table.cell(y, x).text = text  # type: ignore[attr-defined]  # the two kinds have no common base


def main() -> int:
    """Write all samples that a program makes."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder)
        for name in ("invoice_cafe_zoe", "invoice_nordlicht"):
            print_pdf(profile, SOURCES / f"{name}.html", SAMPLES / f"{name}.pdf")
        scan(profile, SOURCES / "invoice_scan.html", SAMPLES / "invoice_scan.pdf")
    contract(SAMPLES / "service_contract.docx")
    lease(SAMPLES / "lease_lindström.docx")
    deck(SAMPLES / "board_workshop.pptx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
