"""The shop of the example."""


def order_numbers() -> list[int]:
    """Return the numbers of all orders."""
    return list(range(1, 201))


def order(number: int) -> dict[str, int]:
    """Return an order.

    Args:
        number: Its number.
    """
    late = 12 if number % 50 == 0 else number % 5
    return {"number": number, "amount": number, "days_late": late}


def refund(number: int, amount: int) -> str:
    """Refund an order.

    Args:
        number: The number of the order.
        amount: The amount in euros.
    """
    return f"{amount} euros for order {number}"
