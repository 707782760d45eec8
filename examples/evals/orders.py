"""The orders of the example."""

ORDERS = {7: "2 chairs, 80 EUR, sent on Monday", 8: "1 table, 300 EUR, not sent yet"}


def find_order(number: int) -> str:
    """Find an order by its number."""
    return ORDERS.get(number, f"there is no order {number}")
