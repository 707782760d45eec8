"""Exceptions as text, with the reasons that `str` leaves out: notes and the members of a group.

Sandboxes with Python 3.9 run this module, too, so it needs only the standard library.
"""

from __future__ import annotations

from typing import Any, Optional

_MOST = 10
"""Maximum number of members of a group, and of notes, that are shown."""
_DEEPEST = 5


def message_of(error: BaseException, text: Optional[str] = None) -> str:  # noqa: UP045
    """Return the message of an exception with its notes and members, or an empty text.

    It does not raise, although an exception is foreign code, and so are its methods.

    Args:
        error: The exception.
        text: Replaces `str(error)`.
    """
    return _message(error, 0, text)


def describe(error: BaseException) -> str:
    """Return the type of an exception and `message_of`."""
    return _described(error, 0)


def leaves_of(error: BaseException, most: int) -> list[BaseException]:
    """Return the exceptions in a group, and in the groups in it. Others have none.

    Args:
        error: The exception.
        most: Maximum number of exceptions.
    """
    leaves: list[BaseException] = []
    waiting = _members(error)
    while waiting and len(leaves) < most:
        first, *waiting = waiting
        inner = _members(first)
        waiting = [*inner, *waiting]
        leaves += [] if inner else [first]
    return leaves


def _members(error: BaseException) -> list[BaseException]:
    members = attribute_of(error, "exceptions", tuple) or ()  # Python 3.10 has no groups.
    return [each for each in members if isinstance(each, BaseException)]


def _described(error: BaseException, depth: int) -> str:
    text = _message(error, depth)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _message(error: BaseException, depth: int, text: Optional[str] = None) -> str:  # noqa: UP045
    text = _text(error) if text is None else text
    notes = _listed([_text(each) for each in attribute_of(error, "__notes__", list) or ()])
    if notes:
        text = f"{text} ({notes})" if text else notes
    members = _members(error) if depth < _DEEPEST else leaves_of(error, _MOST)
    if not members:
        return text
    reasons = _listed([_described(each, depth + 1) for each in members])
    return f"{text} [{reasons}]" if depth else f"{text}: {reasons}"


def _text(value: Any) -> str:
    try:
        return str(value)
    except BaseException:
        return ""


def attribute_of(error: BaseException, name: str, kind: Any) -> Any:
    """Return an attribute of an exception, or `None` if it has none of this type.

    It does not raise, as `message_of` does not.
    """
    try:
        value = getattr(error, name)
    except BaseException:
        return None
    return value if isinstance(value, kind) else None


def _listed(texts: list[str]) -> str:
    more = f"and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return "; ".join([*texts[:_MOST], *([more] if more else [])])
