"""What operators do with an execution on the page: retry, fork and cancel it."""

from __future__ import annotations

from typing import Any

from flowengine.page.view import View, checked
from flowengine.server import executions
from flowengine.server.calls import Call
from flowengine.server.models import CancelBody, ForkBody, RetryBody


def retry(call: Call, given: dict[str, str]) -> View:
    """Record a retry of what failed in an execution, and show it."""
    return _shown(executions.retry(call._replace(body=checked(RetryBody, {}))))


def fork(call: Call, given: dict[str, str]) -> View:
    """Record a fork that begins where a step started, and show it. Sent twice, it is one fork."""
    body = checked(ForkBody, {"from_step": given.get("from_step", "")})
    return _shown(executions.fork(call._replace(body=body, seed=given.get("id") or None)))


def cancel(call: Call, given: dict[str, str]) -> View:
    """Request that an execution is cancelled, and show it."""
    body = checked(CancelBody, {"reason": given.get("reason", "")})
    return _shown(executions.cancel(call._replace(body=body)))


def _shown(answer: dict[str, Any]) -> View:
    return View("", {}, redirect=f"/executions/{answer['execution']}")
