"""Grants, which also cover later calls, and images that are attached to decisions about calls."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from flowengine.engines.results import GrantGiven
from flowengine.errors import Hint, InputError
from flowengine.kernel.notation.grants import FLOW
from flowengine.kernel.notation.times import TooLong, parse_duration
from flowengine.kernel.view import counting
from flowengine.sdk.steps.context import File
from flowengine.sdk.texts.sizes import size_text

# Grants: approvals that also cover later calls. Creating, listing and revoking them.


def checked_grant(
    wait: Mapping[str, Any], choice: str, given: GrantGiven, now: int
) -> dict[str, Any]:
    """Return a grant in the form stored with a decision.

    Args:
        wait: The question.
        choice: The choice.
        given: The requested grant.
        now: The time (ms).

    Raises:
        InputError: It is not valid, or not permitted here.
    """
    _check_may_be_granted(wait, choice)
    if unknown := given.keys() - {"scope", "args", "uses", "expires"}:
        message = f"a grant has no '{min(unknown)}'"
        raise InputError(message, field="grant", hint="it has scope, args, uses and expires")
    grant: dict[str, Any] = {"args": _patterns(wait, given)}
    scope: Any = given.get("scope", "execution")
    if scope not in ("execution", FLOW):
        message = f"the scope of a grant is 'execution' or 'flow', not {scope!r}"
        raise InputError(message, field="grant.scope")
    if scope == FLOW:
        grant["scope"] = FLOW
    uses: Any = given.get("uses")
    if uses is not None:
        if not isinstance(uses, int) or isinstance(uses, bool) or uses < 1:
            message = f"uses is {uses!r}, not a number from 1 on"
            raise InputError(message, field="grant.uses")
        grant["uses"] = uses
    expires: Any = given.get("expires")
    if expires is not None:
        try:
            grant["until"] = now + parse_duration(expires)
        except (ValueError, TypeError) as error:
            too_long = isinstance(error, TooLong)
            message = str(error) if too_long else f"{expires!r} is not a duration"
            raise InputError(message, field="grant.expires", hint="for example 2h") from None
    return grant


def _check_may_be_granted(wait: Mapping[str, Any], choice: str) -> None:
    """Check that a question can also be answered for later calls.

    Raises:
        InputError: It cannot.
    """
    if "digest" not in wait:
        raise InputError("only the approval of a call can be granted for later ones", field="grant")
    if counting(dict(wait), choice) != "approve":
        raise InputError(
            f"'{choice}' is not an approval that later calls could share", field="grant"
        )
    message = None
    if wait.get("required"):
        message = f"{wait['tool']!r} has 'approval: required': each call needs its own approval"
    elif (wait.get("need") or 1) > 1:
        message = "several users have to approve this, so one cannot approve later calls"
    elif wait.get("claim"):
        message = "each of these questions has to be claimed, so one cannot approve later calls"
    if message is not None:
        raise InputError(message, field="grant")


def _patterns(wait: Mapping[str, Any], given: GrantGiven) -> dict[str, str]:
    """Return the permitted arguments of later calls.

    Raises:
        InputError: The call has no such argument, or the value is not a pattern.
    """
    patterns = dict(given.get("args") or {})
    known: Any = wait.get("subject")
    known = known if isinstance(known, dict) else {}
    for name, pattern in patterns.items():
        if name not in known or not isinstance(pattern, str):
            names = ", ".join(known) or "none"
            message = f"'{name}' is not an argument of this call"
            raise InputError(message, field=f"grant.args.{name}", hint=f"its arguments: {names}")
    return patterns


# Images attached to a decision about a call, which are shown to the model that made the call.
#
# They are kept as files of the execution, so the journal only contains their digests.

MOST = 8
LARGEST = 10 * 1024 * 1024
"""Maximum size of one image in bytes."""


def checked_images(
    record: Mapping[str, Any], choice: str, images: Sequence[str | os.PathLike[str] | bytes]
) -> list[bytes]:
    """Return the bytes of images.

    Args:
        record: Record of the wait.
        choice: The choice.
        images: Paths, the bytes of images, or `data:` URLs.

    Raises:
        InputError: The decision accepts no images, or a model cannot be shown one of them.
    """
    counts_as = next((each["counts_as"] for each in record["choices"] if each["id"] == choice), "")
    if "digest" not in record or counts_as not in ("approve", "reject"):
        raise InputError(
            "images go with the approval or rejection of a call",
            field="image",
            hint=Hint(
                "attach files to other decisions: attach=[FILE]",
                "attach files to other decisions: --attach FILE",
            ),
        )
    if len(images) > MOST:
        message = f"{len(images)} images are given: at most {MOST} are allowed"
        raise InputError(message, field="image")
    return contents(images)


def contents(images: Sequence[str | os.PathLike[str] | bytes]) -> list[bytes]:
    """Return the bytes of images.

    Raises:
        InputError: One is not an image, or is too large.
    """
    return [_checked(image) for image in images]


def digests(images: Sequence[str | os.PathLike[str] | bytes]) -> list[str]:
    """Return the digests by which images are kept.

    Raises:
        InputError: One is not an image, or is too large.
    """
    return [sha256(image).hexdigest() for image in contents(images)]


def name_of(image: bytes) -> str:
    """Return the name under which an image is kept, with the extension of its type."""
    from flowengine.sdk.tools.tool_calls import media_type

    return f"image.{(media_type(image[:16]) or '').removeprefix('image/')}"


def view(image: File) -> dict[str, Any]:
    """Return an image of a decision, as shown to users.

    Args:
        image: The kept file.
    """
    type = image["name"].rpartition(".")[2]
    return {"media_type": f"image/{type}", "size": image["size"], "sha256": image["sha256"]}


def _checked(image: str | os.PathLike[str] | bytes) -> bytes:
    from pydantic import ValidationError

    from flowengine.sdk.tools.tool_calls import Image

    named = "the image"
    given: Any = image
    if not isinstance(image, bytes) and not str(image).startswith("data:"):
        named = f"image {os.fspath(image)}"
        given = _content(os.fspath(image), named)
    try:
        return b64decode(Image.model_validate(given).data)
    except ValidationError:
        raise InputError(
            f"{named} is not one that models accept",
            field="image",
            hint="give PNG, JPEG, GIF or WebP",
        ) from None


def _content(path: str, named: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{named}: {error.strerror}", field="image") from None
    if len(data) > LARGEST:
        raise InputError(f"{named} is larger than {size_text(LARGEST)}", field="image")
    return data
