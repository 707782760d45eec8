"""Deploying a flow on the page: it is checked, its diagnostics are shown, then it is deployed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from flowengine.errors import FlowEngineError, FlowFileError, InputError
from flowengine.page.sent_forms import SentFile, as_sent
from flowengine.page.view import PageView, checked, with_error
from flowengine.sdk.files.file_names import clean_name
from flowengine.sdk.texts.received import received_text
from flowengine.sdk.texts.sizes import size_text
from flowengine.server import flows
from flowengine.server.application import LARGEST_BODY
from flowengine.server.calls import ApiCall
from flowengine.server.models import FlowTextBody

_CHECKED = "checked"
"""Field with the digest of the text whose diagnostics the user has seen."""


def show_deploy(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the form in which a flow is chosen or written."""
    return _shown(call, {}, None, None)


def text_of_file(call: ApiCall, files: Sequence[SentFile]) -> dict[str, str]:
    """Return the fields that a chosen flow file stands for.

    Raises:
        InputError: It is not a text, or too long.
    """
    if not files:
        return {}
    name, path = clean_name(files[-1].name), files[-1].path
    if path.stat().st_size > LARGEST_BODY:
        raise InputError(f"{name!r} has more than {size_text(LARGEST_BODY)}", field="text")
    try:
        return {"text": received_text(path.read_bytes()), "name": name, _CHECKED: ""}
    except UnicodeDecodeError:
        raise InputError(f"{name!r} is not a text in UTF-8", field="text") from None


def deploy(
    call: ApiCall, given: dict[str, str], refused: FlowEngineError | None = None
) -> PageView:
    """Check a flow, and show its diagnostics. Deploy the text that was checked before."""
    if refused is not None:
        return _shown(call, given, None, refused)
    given = {**given, "text": as_sent(given.get("text", ""))}
    try:
        fields = {"text": given["text"], "name": given.get("name", "").strip() or "flow.yaml"}
        call = call._replace(body=checked(FlowTextBody, fields))
        if given.get("do") != "deploy" or given.get(_CHECKED) != _digest(given["text"]):
            return _shown(call, given, flows.check_flow(call), None)
        deployed = flows.deploy(call)
    except FlowFileError:
        return _shown(call, given, flows.check_flow(call), None)
    except FlowEngineError as error:
        return _shown(call, given, None, error)
    return PageView("", {}, redirect=f"/flows/{quote(deployed['flow'])}")


def _shown(
    call: ApiCall, given: dict[str, str], problem: Any, error: FlowEngineError | None
) -> PageView:
    """Show the form.

    Args:
        call: The request.
        given: Its fields, as submitted.
        problem: The result of the check. None: nothing was checked.
        error: Why the flow was refused.
    """
    is_right = problem is not None and not problem["errors"]
    return with_error(
        "deploy.html",
        {
            "text": given.get("text", ""),
            "lines": given.get("text", "").split("\n"),
            "name": given.get("name", ""),
            "found": problem,
            "checked": _digest(given["text"]) if is_right else "",
            "before": call.engine.flows.versions(problem["flow"]) if is_right else [],
            "is_allowed": call.engine.settings.deploys is not None,
        },
        error,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
