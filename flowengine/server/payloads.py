"""The routes of a codec server, for Temporal's own page and command line.

See https://docs.temporal.io/production-deployment/data-encryption: payloads are sent with POST to
`/decode` and `/encode`, and the header `X-Namespace` names their namespace.
"""

from __future__ import annotations

from typing import Any

from flowengine.errors import NotAllowed
from flowengine.server.calls import ApiCall
from flowengine.server.rights import Right


def decode(call: ApiCall) -> Any:
    """Return payloads as JSON. No payload names the flow to which it belongs."""
    _check(call, Right.CONTENT)
    return {"payloads": call.engine.decode_payloads(_given(call), call.namespace)}


def encode(call: ApiCall) -> Any:
    """Return payloads as workers send them. They can be sent to executions of any flow."""
    _check(call, Right.OPERATE)
    return {"payloads": call.engine.encode_payloads(_given(call), call.namespace)}


def _given(call: ApiCall) -> list[dict[str, Any]]:
    return [payload.model_dump() for payload in call.body.payloads]


def _check(call: ApiCall, right: Right) -> None:
    """Check that the user has a right on all flows.

    Raises:
        NotAllowed: The user lacks it.
    """
    if not call.may(right, ""):  # only the pattern `*` matches this
        raise NotAllowed(
            f"{call.principal.user} lacks the right '{right.value}' on all flows",
            hint="rights come from 'access' in the host's settings.yaml and the token's scope",
        )
