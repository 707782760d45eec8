"""`webhook`: reports an event to another service, signed by Standard Webhooks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from flowengine.sdk import (
    CallSignature,
    Plain,
    StepContext,
    StepKind,
    Synonym,
    ValidationError,
)
from flowengine.sdk.tools.schemas import TEXT, record
from flowengine.sdk.web.signatures import signature, signing_key
from flowengine_nodes.messages import arguments, deliver

_ARGS = arguments(
    {
        "type": {**TEXT, "description": "What has happened: `order.paid`."},
        "data": {"description": "The data of the event."},
    }
)


class Webhook(StepKind):
    """Delivers an event to a service."""

    secrets = ("url", "secret")
    takes_arguments = True
    effect = "idempotent"
    synonyms = (
        Synonym("uri endpoint address href", "write 'url: …'", "url"),
        Synonym("key signing_secret signing_key token", "write 'secret: …'", "secret"),
    )

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `webhook`."""
        return record(
            {
                "url": {
                    **TEXT,
                    "description": "Where the event is posted.",
                    "examples": ["https://shop.example.com/hooks/flows"],
                },
                "secret": {
                    **TEXT,
                    "description": "The secret that both sides know: 24 to 64 bytes in base64, "
                    "after `whsec_`.",
                    "examples": ["${{ secrets.WEBHOOK }}"],
                },
            },
            ["url", "secret"],
        )

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments and the result of a delivery."""
        returns = record({"id": TEXT})
        return CallSignature(_ARGS, returns, description="Report an event to a service.")

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Deliver an event.

        Args:
            context: The attempt.
            task: Nothing of interest.
            input: `args`, and those that the flow fixes. `configuration` contains the others.

        Returns:
            `{id}`, the `webhook-id`, the same in every attempt.

        Raises:
            HttpError: It was refused or redirected, or there was no response.
            Timeout: The service stopped responding.
            ValidationError: The event is missing, or the secret or the address is not valid.
        """
        configuration = input["configuration"]
        try:
            key = signing_key(configuration["secret"])
        except ValueError as error:
            raise ValidationError(f"the secret of the webhook is not valid: {error}") from None
        event = _event({**input["args"], **input.get("bind", {})})
        id, seconds = context.idempotency_key, str(int(time.time()))
        body = json.dumps(event, ensure_ascii=False, default=str).encode()
        headers = {
            "Content-Type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": seconds,
            "webhook-signature": signature(key, id, seconds, body),
        }
        request = {"url": configuration["url"], "headers": headers, "body": body}
        await deliver(context, request)
        return {"id": id}


def _event(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a delivery: `type`, `timestamp` and `data`.

    Raises:
        ValidationError: The event is missing.
    """
    if (execution := args.get("execution")) is not None:
        type, at, data = f"execution.{execution['status']}", execution["ended_at"], execution
    elif (approval := args.get("approval")) is not None:
        type, at, data = f"approval.{approval['why']}", approval["since"], approval
    elif args.get("type"):
        type, at, data = args["type"], None, args.get("data")
    else:
        raise ValidationError(
            "a webhook needs a 'type', or the 'approval' or 'execution' of a notification"
        )
    stamp = {} if at is None else {"timestamp": at}
    return {"type": type, **stamp, "data": data}
