"""Rules that find doubtful documents, from their text and tables.

Dates and amounts are recognized in the formats of several countries. A label in front of them
("Total", "Gesamtbetrag", "valid until") determines their meaning. The rules are simple on purpose:
uncertain cases are left to an approver, and every finding contains the text that was read.
"""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple, TypedDict


class Facts(TypedDict):
    """The values read from a document, which an approver may correct."""

    date: str
    """Date of the document as YYYY-MM-DD, or empty."""
    valid_until: str
    """Last day of its validity, as YYYY-MM-DD, or empty."""
    total: float
    """The stated total, or the largest of several. 0 without a total."""
    currency: str


class Checked(TypedDict):
    """A document's facts, and the reasons for a review."""

    facts: Facts
    findings: list[str]
    """Sentences, none for a sound document."""
    summary: str
    """The findings and the beginning of the text, as Markdown, for the approver."""


class Readable(TypedDict):
    """The fields of a document that the checks use."""

    text: str
    tables: list[list[list[str]]]
    problem: str


MONTHS = {
    name: number
    for number, names in enumerate(
        [
            "january jan januar janvier",
            "february feb februar février",
            "march mar märz mars",
            "april apr avril",
            "may mai",
            "june jun juni juin",
            "july jul juli juillet",
            "august aug août",
            "september sep sept septembre",
            "october oct oktober octobre",
            "november nov novembre",
            "december dec dezember décembre",
        ],
        start=1,
    )
    for name in names.split()
}
MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
DATE = re.compile(
    r"\b(?P<y1>\d{4})-(?P<m1>\d{2})-(?P<d1>\d{2})\b"
    r"|\b(?P<d2>\d{1,2})[./](?P<m2>\d{1,2})[./](?P<y2>\d{4})\b"
    rf"|\b(?P<d3>\d{{1,2}})\.? (?P<m3>{MONTH})\.? (?P<y3>\d{{4}})\b"
    rf"|\b(?P<m4>{MONTH})\.? (?P<d4>\d{{1,2}}), (?P<y4>\d{{4}})\b",
    re.IGNORECASE,
)
CURRENCY = r"EUR|USD|GBP|CHF|SEK|DKK|NOK|PLN|€|\$|£"
GROUPED = r"\d{1,3}(?:[.,' \u00a0\u202f]\d{3})+|\d+"
AMOUNT = re.compile(
    rf"(?:(?P<before>{CURRENCY})\s?)?(?<![\d.,])(?P<whole>{GROUPED})(?:[.,](?P<cents>\d{{2}}))?"
    rf"(?![\d%])(?:\s?(?P<after>{CURRENCY}))?"
)
TOTAL = re.compile(r"\b(total|amount due|gesamt\w*|rechnungsbetrag|montant dû|summe)\b", re.I)
PART = re.compile(r"\b(sub-?total|zwischensumme|sous-total|net|netto)\b", re.I)
UNTIL = re.compile(r"valid until|expires|expiry|ends on|gültig bis|valable jusqu", re.I)
MARK = re.compile(r"<!-- (?:page|slide|sheet|chapter) \d+.*? -->\s*")
"""The line with which a page begins."""
SIGNS = {"€": "EUR", "$": "USD", "£": "GBP"}
EXCERPT = 600


class Amount(NamedTuple):
    """A sum of money, with the currency or an empty text."""

    value: float
    currency: str


def check(document: Readable, threshold: float, today: str) -> Checked:
    """Read the facts of a document and check them.

    Args:
        document: Its Markdown and its tables, or the reason why it cannot be read.
        threshold: A total above this needs a review.
        today: The day to compare with, as YYYY-MM-DD.

    Returns:
        The facts, and the findings: none for a sound document.
    """
    text = MARK.sub("", document["text"]).strip()
    facts, totals = read_facts(text)
    findings: list[str] = []
    if document["problem"]:
        findings.append(f"It cannot be read: {document['problem']}.")
    elif not text:
        findings.append("It contains no text and may be a scan.")
    else:
        findings += check_dates(facts, today)
        findings += check_totals(facts, totals, document["tables"], threshold)
    return {"facts": facts, "findings": findings, "summary": summarise(findings, text)}


def check_dates(facts: Facts, today: str) -> list[str]:
    """Find a missing date and an expired validity."""
    findings = []
    if not facts["date"]:
        findings.append("It has no date.")
    if facts["valid_until"] and facts["valid_until"] < today:
        findings.append(f"It expired on {facts['valid_until']}.")
    return findings


def check_totals(
    facts: Facts, totals: list[float], tables: list[list[list[str]]], threshold: float
) -> list[str]:
    """Find totals that contradict each other, their table, or the threshold."""
    findings = []
    if len(set(totals)) > 1:
        told = " and ".join(money(value, facts["currency"]) for value in sorted(set(totals)))
        findings.append(f"It states different totals: {told}.")
    for table in tables:
        stated, added = table_total(table)
        if stated is not None and abs(stated - added) >= 0.005:
            findings.append(f"The rows of a table add up to {added:,.2f}, not {stated:,.2f}.")
    if facts["total"] > threshold:
        told = money(facts["total"], facts["currency"])
        findings.append(f"Its total of {told} is above {threshold:,.2f}.")
    return findings


def read_facts(text: str) -> tuple[Facts, list[float]]:
    """Read the facts of a text, and all stated totals."""
    date = until = ""
    totals: list[Amount] = []
    for line in text.splitlines():
        found = dates(line)
        if UNTIL.search(line):
            until = until or (found[-1] if found else "")
        elif found:
            date = date or found[0]
        if TOTAL.search(line) and not PART.search(line):
            totals += amounts(line)[-1:]
    largest = max(totals, default=Amount(0.0, ""), key=lambda amount: amount.value)
    facts = Facts(date=date, valid_until=until, total=largest.value, currency=largest.currency)
    return facts, [amount.value for amount in totals]


def dates(line: str) -> list[str]:
    """Find the dates in a line, as YYYY-MM-DD. Numeric dates have the day before the month."""
    found = []
    for match in DATE.finditer(line):
        parts = {name[0]: value for name, value in match.groupdict().items() if value}
        month = MONTHS.get(parts["m"].lower()) or int(parts["m"])
        try:
            day = datetime.date(int(parts["y"]), month, int(parts["d"]))
        except ValueError:  # such as the 31st of February
            continue
        found.append(day.isoformat())
    return found


def amounts(line: str) -> list[Amount]:
    """Find the sums of money in a line: with cents or a currency, to exclude years."""
    found = []
    for match in AMOUNT.finditer(DATE.sub(" ", line)):
        sign = match["before"] or match["after"] or ""
        if not sign and match["cents"] is None:
            continue
        whole = re.sub(r"\D", "", match["whole"])
        found.append(Amount(float(f"{whole}.{match['cents'] or '00'}"), SIGNS.get(sign, sign)))
    return found


def table_total(table: list[list[str]]) -> tuple[float | None, float]:
    """Return the total that a table states in its last column, and the sum of the rows above.

    Returns:
        The stated total, `None` if no row is one, and the sum.
    """
    added = 0.0
    for row in table:
        if not row:
            continue
        value = amounts(row[-1])[-1:]
        if TOTAL.match(row[0]) and not PART.search(row[0]):
            return (value[0].value if value else None), added
        if value and not PART.search(row[0]):
            added += value[0].value
    return None, added


def money(value: float, currency: str) -> str:
    """Write a sum of money."""
    return f"{value:,.2f} {currency}".rstrip()


def summarise(findings: list[str], text: str) -> str:
    """Write the findings and the beginning of the text as Markdown."""
    told = "\n".join(f"- {finding}" for finding in findings)
    excerpt = text[:EXCERPT] + ("…" if len(text) > EXCERPT else "")
    quoted = "\n".join(f"> {line}  " for line in excerpt.splitlines())
    return f"{told}\n\n{quoted}".strip()
