"""Functions that the recorded flows name. They never run, because results are scripted."""


def work(n: int = 0) -> dict[str, object]:
    """Do something."""
    return {"n": n, "text": ""}


def undo(n: int = 0) -> None:
    """Undo it."""
