"""The report at the end: a Markdown page with all decisions, approvers and corrections."""

from __future__ import annotations

from typing import Any, TypedDict


class Reviewed(TypedDict):
    """One document and its result."""

    file: str
    facts: dict[str, Any]
    """As read, or as corrected by an approver."""
    findings: list[str]
    decision: dict[str, Any] | None
    """The output of the approval, `None` for a document without findings."""


def render(folder: str, today: str, documents: list[Reviewed], ignored: list[str]) -> str:
    """Write the report.

    Args:
        folder: Where the documents are.
        today: The day of the review, as YYYY-MM-DD.
        documents: All documents, in the order of the report.
        ignored: Files of other kinds.

    Returns:
        The report as Markdown.
    """
    doubtful = [document for document in documents if document["decision"]]
    lines = [f"# Documents in {folder}, reviewed on {today}", ""]
    lines += [f"{len(documents)} documents, {len(doubtful)} of them looked at by a person.", ""]
    lines += overview(documents)
    for document in doubtful:
        lines += details(document)
    if ignored:
        lines += ["", "Not read: " + ", ".join(ignored) + "."]
    return "\n".join(lines) + "\n"


def overview(documents: list[Reviewed]) -> list[str]:
    """Write the table of all documents."""
    lines = ["| document | date | total | result |", "|---|---|---:|---|"]
    for document in documents:
        facts = document["facts"]
        total = f"{facts['total']:,.2f} {facts['currency']}".strip() if facts["total"] else ""
        cells = [document["file"], facts["date"], total, verdict(document)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def verdict(document: Reviewed) -> str:
    """Return the result of a document in a few words."""
    decision = document["decision"]
    if decision is None:
        return "sound"
    done = {"approve": "approved", "reject": "rejected"}[decision["choice"]]
    return f"{done} by {decision['by']}"


def details(document: Reviewed) -> list[str]:
    """Write the findings about a document, and the decision with its corrections."""
    decision = document["decision"]
    assert decision is not None
    lines = ["", f"## {document['file']}", ""]
    lines += [f"- {finding}" for finding in document["findings"]]
    told = verdict(document)
    lines += ["", f"{told[0].upper()}{told[1:]} at {decision['at']}."]
    if decision["comment"]:
        lines += ["", *(f"> {line}" for line in decision["comment"].splitlines())]
    before, after = decision["original"], decision["subject"]
    changed = [field for field in before if before[field] != after[field]]
    if changed:
        lines += ["", "| field | as read | as corrected |", "|---|---|---|"]
        lines += [f"| {name} | {shown(before[name])} | {shown(after[name])} |" for name in changed]
    return lines


def shown(value: object) -> str:
    """Write a field of a table."""
    return str(value).replace("|", "\\|") or "(none)"
