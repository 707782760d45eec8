"""The conformance suite for stores: for the built-in ones and for yours.

Each check takes a function that makes an empty store, and raises `AssertionError` if the store
breaks the rule that the check's docstring states. With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store_conforms(check, tmp_path):
        check(lambda is_dead: MyStore(tmp_path / "store", is_dead=is_dead))
"""

from __future__ import annotations

from tests.testing.store_conformance import (
    artifacts,
    budgets,
    directory,
    flows,
    grants,
    inbox,
    journals,
    leases,
    locks,
    messages,
)
from tests.testing.store_conformance.making import Check, MakeStore

__all__ = ["CHECKS", "CHECKS_OF_PORTS", "Check", "MakeStore"]

_PARTS = {
    "flows": [flows],
    "journals": [journals, leases],
    "directory": [directory],
    "inbox": [inbox],
    "messages": [messages, locks, budgets, grants],
    "artifacts": [artifacts],
}

CHECKS_OF_PORTS: dict[str, list[Check]] = {
    port: [
        check for part in parts for name, check in vars(part).items() if name.startswith("check_")
    ]
    for port, parts in _PARTS.items()
}
"""The checks of each port of `flowengine.journal.ports`, by the name of its module."""

CHECKS: list[Check] = [check for checks in CHECKS_OF_PORTS.values() for check in checks]
"""All checks."""
