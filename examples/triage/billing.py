"""The tools of the billing agent: look up invoices, and refund money."""

from __future__ import annotations

INVOICES = {"4711": {"amount": 240.0, "due": 180.0}}


def find_invoice(number: str) -> dict[str, float | None]:
    """Return the amounts of an invoice: charged and due.

    Args:
        number: The number on the invoice.
    """
    found = INVOICES.get(number)
    return {"amount": None, "due": None} if found is None else {**found}


def refund(number: str, amount: float) -> str:
    """Refund money.

    Args:
        number: The number on the invoice.
        amount: How much, in euros.
    """
    return f"{amount:.2f} EUR go back for invoice {number}"
