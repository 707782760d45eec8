"""Secrets, resolved in the process that needs them and masked in everything that leaves a step.

A flow contains only references. `Secrets` reads their values when a step needs one, and `masking`
knows the forms in which they may occur. The logs of the process are masked from the first value on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import is_not
from typing import IO, Any

from flowengine.kernel.graph.compiled import Plain, SecretText
from flowengine.masking import NOTHING, PROCESS, Masker, StreamMasker, mask_logs
from flowengine.sdk import SecretMissing, ValidationError

_LOGGED = 4
"""Minimum length of values masked in logs. Logs of a process contain more than one flow, in which
shorter values occur by chance."""


class Secrets:
    """The secrets of one flow in this process.

    Args:
        references: Name → reference, as the flow declares them.
    """

    def __init__(self, references: Mapping[str, Plain]) -> None:
        self.references = references
        """Name → its source, as the flow declares it."""
        self._masker = Masker() if references else NOTHING
        self._looked = not references
        self.names = frozenset(references)
        self.variables = frozenset(
            reference["env"] for reference in references.values() if "env" in reference
        )
        """Environment variables that contain secrets. A command receives them only on request."""

    def reveal(self, value: Plain) -> Plain:
        """Return a value with the references to secrets in its texts resolved.

        Parts without secrets are returned as the same objects. A missing secret raises
        `SecretMissing` with its reference.

        Args:
            value: Plain data that may contain `SecretText`.

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
            return items if any(map(is_not, items, value)) else value
        return value

    def mask(self, value: Plain) -> Plain:
        """Return plain data with every secret in it replaced by `***`.

        Secrets that no step has used yet are masked too, as far as they can be read here, because a
        command may have found one by itself.
        """
        if not self.references:
            return value
        self._resolve()
        return self._masker.mask(value)

    def stream(self) -> StreamMasker:
        """Return a masker for a text that arrives in pieces."""
        self._resolve()
        return self._masker.stream()

    def mask_file(self, source: IO[bytes], target: IO[bytes], name: str) -> bool:
        """Copy a file that is to be kept, with secrets masked, if it contains any.

        Args:
            source: The file, at its beginning.
            target: The file to write.
            name: The file's name, for messages.

        Returns:
            Whether it contains any. If not, nothing was written.

        Raises:
            ValidationError: It contains a secret that is not declared with `files: mask`.
        """
        self._resolve()
        names = self._masker.names_in(source)
        for secret in names:
            if self.references[secret].get("files") != "mask":
                raise ValidationError(
                    f"the file '{name}' contains the secret {secret}, so it is not kept. "
                    f"Leave the secret out of it, or declare '{secret}' with 'files: "
                    "mask'"
                )
        if names:
            source.seek(0)
            self._masker.mask_file(source, target)
        return bool(names)

    def _resolve(self) -> None:
        if self._looked:
            return
        self._looked = True
        for name in self.references:
            try:
                self._value(name)
            except SecretMissing:
                continue

    def _value(self, name: str) -> str:
        value = resolve(name, self.references[name])
        self._masker.learn(value, name)
        if len(value) >= _LOGGED:
            PROCESS.learn(value, name)
            mask_logs(PROCESS.mask)
        return value


def mask_known(value: Plain) -> Plain:
    """Return plain data with every secret that this process has read replaced by `***`."""
    return PROCESS.mask(value)


def resolve(name: str, reference: Mapping[str, Plain]) -> str:
    """Read a secret.

    Args:
        name: Its name in the flow.
        reference: `{"env": VARIABLE}` or `{"file": PATH}`.

    Returns:
        The value. For a file, without the final line break.

    Raises:
        SecretMissing: The secret does not exist, or is empty: a check of signatures with an empty
            key would accept those of every sender.
    """
    if "env" in reference:
        value = os.environ.get(reference["env"])
        if value:
            return value
        raise SecretMissing(
            f"secret '{name}' is not available: the environment variable {reference['env']} is "
            f"{'empty' if value == '' else 'not set'}"
        )
    if "file" in reference:
        try:
            with open(os.path.expanduser(reference["file"]), encoding="utf-8") as file:
                value = file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SecretMissing(
                f"secret '{name}' is not available: {reference['file']}: {why}"
            ) from None
        if value:
            return value
        raise SecretMissing(f"secret '{name}' is not available: {reference['file']} is empty")
    raise SecretMissing(f"secret '{name}': its kind of reference is not supported yet")


def has_secret(value: Any) -> bool:
    """Return whether a compiled value (`["map", ...]`, ...) can produce a text with secrets."""
    if not isinstance(value, list) or not value:
        return False
    match value[0]:
        case "secret":
            return True
        case "list" | "with" | "arguments":
            return any(map(has_secret, value[1]))
        case "map":
            return any(map(has_secret, value[1].values()))
    return False
