"""The conformance suite for stores: for the built-in ones and for yours.

Each check takes a function that makes an empty store, and raises `AssertionError` if the store
breaks the rule that the check's docstring states. With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store_conforms(check, tmp_path):
        check(lambda is_dead: MyStore(tmp_path / "store", is_dead=is_dead))
"""

from __future__ import annotations

from flowengine.testing.store_conformance import (
    care,
    grants,
    journals,
    leases,
    lists,
    locks,
    messages,
    waits,
)
from flowengine.testing.store_conformance.making import Check, MakeStore

__all__ = ["CHECKS", "Check", "MakeStore", "check_store"]

CHECKS: list[Check] = [
    check
    for part in (journals, leases, messages, locks, waits, grants, lists, care)
    for name, check in vars(part).items()
    if name.startswith("check_")
]
"""All checks."""


def check_store(make: MakeStore) -> None:
    """Run all checks.

    Args:
        make: Makes an empty store. It is called once for each check.
    """
    for check in CHECKS:
        check(make)
