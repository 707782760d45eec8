"""Secrets: resolved in the process that needs them, and masked in everything that leaves a step.

A flow holds references only. `Secrets` reads their values when a step needs one, and knows how each
may show up in a text: as it is, line by line, escaped for JSON, URL encoded, in base64 (also as a
part of something longer that was encoded, such as `user:password`), in hexadecimal digits.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from flowengine.kernel.graph import Plain, SecretText
from flowengine.sdk import SecretMissing

MASK = "***"

_SHORT = 4
"""A shorter value is masked only where it stands as a word: a secret `a` in each `a` of a text
would tell more than it hides."""
_SHORT_LINE = 8
"""Lines of a secret of several lines are masked by themselves from this length on."""


class Secrets:
    """The secrets of one flow in this process.

    Args:
        references: Name → reference, as the flow declares them.
    """

    def __init__(self, references: Mapping[str, Plain]) -> None:
        self.references = references
        """Name → where it comes from, as the flow declares it."""
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._looked = not references
        self.names = frozenset(references)
        self.variables = frozenset(
            reference["env"] for reference in references.values() if "env" in reference
        )
        """Environment variables that hold secrets: a command gets them only by asking."""

    def reveal(self, value: Plain) -> Plain:
        """Return a value with every text that names secrets turned into that text.

        What holds no secret comes back as the same object. A secret that is not there is a
        `SecretMissing` that names its reference.

        Args:
            value: Plain data that may hold `SecretText`.

        Returns:
            Plain data.
        """
        if isinstance(value, SecretText):
            return "".join(
                [part if isinstance(part, str) else self._value(part[0]) for part in value.parts]
            )
        if type(value) is dict:
            changed = {key: self.reveal(item) for key, item in value.items()}
            return changed if any(changed[key] is not value[key] for key in value) else value
        if type(value) is list:
            items = [self.reveal(item) for item in value]
            return items if any(map(_differ, items, value)) else value
        return value

    def mask(self, value: Plain) -> Plain:
        """Return plain data with every secret in it replaced by `***`.

        Those that no step has used yet are masked too, as far as they can be read here: a command
        may have found one by itself.
        """
        if not self._looked:
            self._look()
        if self._pattern is None:
            return value
        return _mask(value, self._pattern)

    def _look(self) -> None:
        self._looked = True
        for name in self.references:
            try:
                self._value(name)
            except SecretMissing:
                continue

    def _value(self, name: str) -> str:
        value = resolve(name, self.references[name])
        if value not in self._values and value.strip():
            self._values.add(value)
            forms = sorted(
                {form for each in self._values for form in _forms(each)}, key=len, reverse=True
            )
            self._pattern = re.compile("|".join(map(_expression, forms)))
        return value


def resolve(name: str, reference: Mapping[str, Plain]) -> str:
    """Read a secret.

    Args:
        name: Its name in the flow.
        reference: `{"env": VARIABLE}` or `{"file": PATH}`.

    Returns:
        The value; of a file without the line end at its end.

    Raises:
        SecretMissing: It is not there.
    """
    if "env" in reference:
        value = os.environ.get(reference["env"])
        if value:
            return value
        raise SecretMissing(
            f"secret '{name}' is not there: the environment variable {reference['env']} is "
            f"{'empty' if value == '' else 'not set'}"
        )
    if "file" in reference:
        try:
            with open(os.path.expanduser(reference["file"]), encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise SecretMissing(
                f"secret '{name}' is not there: {reference['file']}: {why}"
            ) from None
    raise SecretMissing(f"secret '{name}': its kind of reference is not supported yet")


def has_secret(value: Any) -> bool:
    """Return whether a compiled value (`["map", ...]`, ...) can give a text with secrets."""
    if not isinstance(value, list) or not value:
        return False
    match value[0]:
        case "secret":
            return True
        case "list" | "with":
            return any(map(has_secret, value[1]))
        case "map":
            return any(map(has_secret, value[1].values()))
    return False


def _differ(one: Any, other: Any) -> bool:
    return one is not other


def _mask(value: Plain, pattern: re.Pattern[str]) -> Plain:
    if type(value) is str:
        return pattern.sub(MASK, value)
    if type(value) is dict:
        return {_mask(key, pattern): _mask(item, pattern) for key, item in value.items()}
    if type(value) is list:
        return [_mask(item, pattern) for item in value]
    if type(value) is bytes:
        text = value.decode("latin-1")
        masked = _byte_pattern(pattern.pattern).sub(MASK, text)
        return value if masked is text else masked.encode("latin-1")
    return value


@lru_cache(maxsize=64)
def _byte_pattern(pattern: str) -> re.Pattern[str]:
    """Return the pattern for bytes read as Latin-1: secrets in them are UTF-8."""
    return re.compile(pattern.encode().decode("latin-1"))


def _expression(form: str) -> str:
    if len(form) < _SHORT:
        return rf"(?<!\w){re.escape(form)}(?!\w)"
    return re.escape(form)


def _forms(secret: str) -> Iterator[str]:
    """Yield the texts as which a secret may show up."""
    whole = {secret, secret.strip()}
    lines = {line.strip() for line in secret.splitlines() if len(line.strip()) >= _SHORT_LINE}
    for text in whole | lines:
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield quote(text)
        yield quote(text, safe="")
        yield quote_plus(text)
        if len(text) >= _SHORT:
            yield text.encode().hex()
            yield from _base64_forms(text.encode())


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield what is left of a secret in base64, wherever in the encoded bytes it began.

    Three bytes make four characters; those that also depend on a neighbour's bytes are left out.
    """
    for offset in range(3):
        data = b"\0" * offset + secret
        encoded = base64.b64encode(data)
        start = (offset * 8 + 5) // 6
        end = len(data) * 8 // 6
        text = encoded[start:end].decode()
        if len(text) >= _SHORT:
            yield text
            yield text.translate(str.maketrans("+/", "-_"))
