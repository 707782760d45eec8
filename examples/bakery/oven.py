"""The oven of the bakery."""


class TooCold(Exception):
    """It has to heat up first."""

    retryable = True


def bake(good: str) -> str:
    """Bake something.

    Args:
        good: What.

    Returns:
        What it has become.
    """
    return f"warm {good}"
