"""Budgets that executions share: the grants of claims, in any store.

A claim states for each meter `[limit, least, most, beyond]`. It is refused if less than `least` is
left of the limit, and waits if others have reserved it. Otherwise, it is granted at most the
rest, plus `beyond`. Calls (`tool_calls`) are not waited for, because one that has begun counts in
any case. A claim can also state the limit of a meter that its call does not use, with None for the
rest. It is kept for lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.journal.encoding import pack, unpack

_COUNTED = "tool_calls"


class Answer(NamedTuple):
    """The answer to a claim."""

    amounts: Mapping[str, int] = {}
    """The reserved amounts, by meter."""
    lacks: Mapping[str, Any] | None = None
    """The `meter` that has too little left, and its `used` and `limit`."""

    def event(self, granted: bytes) -> bytes:
        """Return the packed event `granted` with this answer."""
        added = {"amounts": self.amounts} if self.lacks is None else {"lacks": self.lacks}
        return pack({**unpack(granted), **added})


def answer(
    needs: Mapping[str, Sequence[int | None]],
    used: Mapping[str, int],
    reserved: Iterable[Mapping[str, int]],
) -> Answer | None:
    """Return the answer to a claim. None: it waits for calls that have reserved the rest.

    Args:
        needs: As in the claim.
        used: The amounts used by calls that have ended.
        reserved: The amounts of each granted claim.
    """
    taken = total(reserved)
    granted: dict[str, int] = {}
    is_crowded = False
    for meter, (limit, least, most, beyond) in needs.items():
        if least is None or most is None or beyond is None:
            continue
        granted[meter] = most
        if limit is None:
            continue
        gone = used.get(meter, 0) + (taken.get(meter, 0) if meter == _COUNTED else 0)
        if limit - gone < max(least, 1):
            return Answer(lacks={"meter": meter, "used": gone, "limit": limit})
        free = limit - used.get(meter, 0) - taken.get(meter, 0)
        is_crowded = is_crowded or free < max(least, 1)
        granted[meter] = min(most, free + beyond)
    return None if is_crowded else Answer(granted)


def total(reserved: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of the amounts of several claims, by meter."""
    taken: dict[str, int] = {}
    for amounts in reserved:
        for meter, amount in amounts.items():
            taken[meter] = taken.get(meter, 0) + amount
    return taken


def limits_in(needs: Mapping[str, Sequence[int | None]]) -> dict[str, int]:
    """Return the limits that a claim states, by meter."""
    return {meter: need[0] for meter, need in needs.items() if need[0] is not None}


def is_unlimited(needs: Mapping[str, Sequence[int | None]]) -> bool:
    """Return whether a claim is only counted."""
    return all(need[0] is None for need in needs.values() if need[1] is not None)


def most_of(needs: Mapping[str, Sequence[int | None]]) -> dict[str, int]:
    """Return the most that a call can use, by meter."""
    return {meter: need[2] for meter, need in needs.items() if need[2] is not None}


def charged(
    used: Mapping[str, int], reserved: Mapping[str, int], given: Mapping[str, int] | None
) -> dict[str, int]:
    """Return the used amounts of a budget once a granted claim has ended.

    Args:
        used: The amounts used before, by meter.
        reserved: The amounts of the claim.
        given: The amounts used by its call. None: unknown, so its reservation counts.
    """
    amounts = reserved if given is None else given
    meters = dict.fromkeys([*used, *amounts])
    return {meter: used.get(meter, 0) + amounts.get(meter, 0) for meter in meters}
