"""Files that steps have kept, as values name them: `{path, name, size, sha256}`.

Code in a sandbox may have forged such a value. The digest identifies the file. The name is used if
it is valid, and `path` is never followed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from flowengine.sdk import Plain, StepContext, ValidationError
from flowengine.sdk.files.file_names import clean_name

_KEYS = {"path", "name", "size", "sha256"}
_DIGEST = re.compile("[0-9a-f]{64}")


def is_kept_file(value: Plain) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value names a kept file. Other values are ordinary data."""
    if not isinstance(value, dict) or value.keys() != _KEYS:
        return False
    digest, name = value["sha256"], value["name"]
    return (
        isinstance(digest, str)
        and _DIGEST.fullmatch(digest) is not None
        and isinstance(name, str)
        and name == clean_name(name)
    )


def place_of(file: Mapping[str, Any]) -> str:
    """Return where a step finds a file, relative to the directory for its files."""
    return f"{file['sha256'][:16]}/{file['name']}"


def source_of(file: Mapping[str, Any], context: StepContext) -> str:
    """Return the path of a file's content on this machine.

    Args:
        file: The value that names it.
        context: The attempt that uses it.

    Raises:
        ValidationError: It is no longer stored.
    """
    try:
        return str(context.execution.artifacts.path(file["sha256"]))
    except KeyError:
        raise ValidationError(
            f"the file {file['name']} ({file['sha256'][:12]}) is no longer kept"
        ) from None
