"""Texts that name secrets, in plain data: taken out to be stored, put back, shown without them."""

from __future__ import annotations

from typing import Any

from flowengine.kernel.graph.compiled import Plain, SecretText


def masked(value: Plain) -> Plain:
    """Return a value as people see it: without what secrets hold."""
    if isinstance(value, SecretText):
        return "".join([part if isinstance(part, str) else "***" for part in value.parts])
    if isinstance(value, dict):
        return {key: masked(one) for key, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list) else value


def split_secrets(value: Plain, path: list[Any], found: list[Plain]) -> Plain:
    """Return a value with None in place of each text that names secrets; those go to `found`."""
    if isinstance(value, SecretText):
        found.append([path, value.parts])
        return None
    if isinstance(value, dict):
        return {k: split_secrets(v, [*path, k], found) for k, v in value.items()}
    if isinstance(value, list):
        return [split_secrets(v, [*path, i], found) for i, v in enumerate(value)]
    return value


def join_secrets(value: Plain, secrets: list[Plain]) -> Plain:
    """Return a copy of a value with the texts that name secrets put back in their places."""
    for path, parts in secrets:
        value = put_at(value, path, SecretText(parts))
    return value


def put_at(value: Plain, path: list[Any], leaf: Plain) -> Plain:
    """Return a copy of nested data with `leaf` at `path`."""
    if not path:
        return leaf
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put_at(copy[path[0]], path[1:], leaf)
    return copy
