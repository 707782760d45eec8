"""Functions named by the recorded flows. They are never called, as results are scripted."""


def work(n: int = 0) -> dict[str, object]:
    """Do some work."""
    return {"n": n, "text": ""}


def undo(n: int = 0) -> None:
    """Undo the work."""
