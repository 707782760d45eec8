"""The language, the command line and the docs have a limited number of words (decision 50)."""

import re
from pathlib import Path
from typing import Any

from flowengine.cli.parsing.command_table import COMMANDS
from flowengine.flow.export.file_schema import flow_schema

MOST_KEYS = 200
MOST_COMMANDS = 48
MOST_WORDS = 100_000
DOCS = Path(__file__).parents[1] / "docs"
APART = {"acceptance.md", "architecture.md", "contributing", "decisions"}
"""In `docs`, but not for users."""
EXAMPLES = {"amount", "cost_center", "q"}
"""Names in examples of the schema."""
OF_SCHEMAS = {"StateSchema": {"python", "reducer", "signal"}, "Output": {"value"}}
"""Definitions that take the keywords of JSON Schema, with their own keys."""


def test_flows_have_at_most_200_keys() -> None:
    schema = flow_schema()
    definitions = schema.pop("$defs")
    words = _keys(definitions.pop("Schema"))
    own = {name: _keys(one) for name, one in definitions.items()} | {"file": _keys(schema)}
    keys = {
        key
        for name, found in own.items()
        for key in (found - words | OF_SCHEMAS.get(name, set()) if words <= found else found)
    }
    assert len(keys - EXAMPLES) <= MOST_KEYS, sorted(keys - EXAMPLES)


def test_there_are_at_most_48_commands() -> None:
    assert len(COMMANDS) <= MOST_COMMANDS, sorted(COMMANDS)


def test_the_docs_for_users_have_at_most_100_000_words() -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in APART]
    texts = [page.read_text() for page in pages]
    assert (
        sum(bool(re.search(r"\w", word)) for text in texts for word in text.split()) <= MOST_WORDS
    )


def _keys(schema: Any) -> set[str]:
    """Return the names of all properties in a schema."""
    if isinstance(schema, list):
        return {key for part in schema for key in _keys(part)}
    if not isinstance(schema, dict):
        return set()
    named = schema.get("properties")
    found = set(named) if isinstance(named, dict) else set()
    return found | {key for part in schema.values() for key in _keys(part)}
