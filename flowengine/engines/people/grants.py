"""Grants, which also cover later calls, and images that are attached to decisions about calls."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from flowengine.engines.actors import Actor
from flowengine.engines.host import Host
from flowengine.engines.infos import GrantGiven, GrantInfo
from flowengine.engines.running.answers import as_kernel_has_it
from flowengine.errors import Conflict, Hint, InputError, NotFound
from flowengine.journal.encoding import pack
from flowengine.journal.records import FlowGrant
from flowengine.journal.refusals import no_grant
from flowengine.journal.shapes import unpack_message
from flowengine.journal.short_ids import the_one
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.grants import FLOW
from flowengine.kernel.notation.times import TooLong, format_time, parse_duration
from flowengine.kernel.view import counting, grant_status
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


def grants_of(host: Host, execution: str | None) -> list[GrantInfo]:
    """Return the grants that apply or applied to an execution, including revoked ones.

    Args:
        host: Provides the store.
        execution: Full id. None: the grants for all executions of a flow, of any flow.

    Returns:
        The grants of the execution, then those of its flow, both oldest first.
    """
    if execution is None:
        return [_of_flow(host, grant) for grant in host.store.grants()]
    of_flow = host.store.grants(host.store.execution(execution).flow)
    return [*_of_execution(host, execution), *(_of_flow(host, grant) for grant in of_flow)]


def _of_execution(host: Host, execution: str) -> Iterator[GrantInfo]:
    state = host.stored(execution, 0).state
    ended = _revoked(host, execution)
    for number, grant in state.get("grants", {}).items():
        info = _info(host, wait_id(execution, number), execution, grant)
        by = grant.get("revoked") or ended.get(number)
        if by is not None:
            info["status"], info["revoked_by"] = "revoked", by
        yield info


def _of_flow(host: Host, grant: FlowGrant) -> GrantInfo:
    stored = as_kernel_has_it(grant)
    info = _info(host, grant.id, stored["execution"], stored)
    info["flow"] = grant.flow
    if grant.revoked_by is not None:
        info["revoked_by"] = grant.revoked_by
    return info


def _info(host: Host, id: str, execution: str, grant: Mapping[str, Any]) -> GrantInfo:
    import json

    shown = {name: json.dumps(value, default=repr) for name, value in grant["args"].items()}
    info: GrantInfo = {
        "id": id,
        "execution": execution,
        "tool": grant["tool"],
        "args": {**shown, **grant["patterns"]},
        "used": grant["used"],
        "by": grant["by"],
        "at": format_time(grant["at"]),
        "status": grant_status(grant, host.clock.now()),
    }
    if "uses" in grant:
        info["uses"] = grant["uses"]
    if "until" in grant:
        info["until"] = format_time(grant["until"])
    return info


def revoke(host: Host, id: str, who: Actor) -> GrantInfo:
    """Revoke a grant of one execution, or of all executions of a flow.

    The store revokes a flow's grant at once. The revocation of an execution's grant is recorded,
    and takes effect in the process that drives the execution.

    Args:
        host: Provides the store.
        id: Id of the grant, or an unambiguous prefix of it.
        who: The actor.

    Returns:
        The grant afterwards.

    Raises:
        NotFound: No grant has this prefix.
        Conflict: It has ended.
        UsageError: Several grants have this prefix.
    """
    of_flows = [grant.id for grant in host.store.grants() if grant.id.startswith(id)]
    if of_flows:
        full = the_one(id, of_flows, "grant", host.store.location)
        return _of_flow(host, host.store.revoke(full, who.fields()["by"]))
    try:
        wait = host.store.wait(host.store.find_wait(id))
    except NotFound:
        raise no_grant(id) from None
    grant = _grant_of(host, wait.execution, wait.id)
    if grant["status"] == "revoked":
        raise Conflict(f"the grant {wait.id} was revoked by {grant['revoked_by']}")
    at = host.clock.now()
    event = {"type": "revoked", "at": at, "grant": wait.number, **who.fields()}
    host.store.send(wait.execution, pack(event), at, host.ids.message())
    return _grant_of(host, wait.execution, wait.id)


def _grant_of(host: Host, execution: str, id: str) -> GrantInfo:
    """Return a grant of an execution.

    Raises:
        NotFound: The execution has no such grant.
    """
    for grant in _of_execution(host, execution):
        if grant["id"] == id:
            return grant
    hint = Hint(f"see them: flowengine grants list {host.store.short_execution(execution)}")
    raise NotFound(f"no grant was given with the decision on {id}", hint=hint)


def _revoked(host: Host, execution: str) -> dict[int, str]:
    """Return recorded revocations that are not journaled yet: grant → revoking user."""
    events = [unpack_message(message) for message in host.store.inbox(execution)]
    return {event["grant"]: event["by"] for event in events if event["type"] == "revoked"}


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
