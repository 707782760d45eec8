"""Keys of the language that this release does not implement: refused (`E502`), never ignored.

To implement one, remove its entry here. The JSON Schema and the checker adapt.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple


class NotYet(NamedTuple):
    """A key that is refused, or some values of it."""

    what: str
    """The feature, for the message: `agents`."""
    refuses: Callable[[Any], bool] | None = None
    """Returns whether a value is refused. None means that all values are."""
    allowed: dict[str, Any] | None = None
    """The other values, as JSON Schema."""


def _is_fallback(value: Any) -> bool:
    return bool(value == "fallback")


NOT_YET: dict[tuple[str, str], NotYet] = {
    ("Budget", "then"): NotYet(
        "continuing with cheaper models, which comes with agents", _is_fallback
    ),
    ("Secret", "keyring"): NotYet("secrets from a keyring"),
    ("Secret", "vault"): NotYet("secrets from a vault"),
}
"""By the model's name and the key. `ParallelStep` is a `Step` here."""


def not_yet(model: str, key: str, value: Any) -> NotYet | None:
    """Return why a key with this value is refused, or None."""
    entry = refused_keys(model).get(key)
    if entry is None or (entry.refuses is not None and not entry.refuses(value)):
        return None
    return entry


@cache
def refused_keys(model: str) -> dict[str, NotYet]:
    """Return the keys of a model that are refused, always or with some values."""
    model = "Step" if model == "ParallelStep" else model
    return {key: entry for (owner, key), entry in NOT_YET.items() if owner == model}
