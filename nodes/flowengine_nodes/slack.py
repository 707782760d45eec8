"""`slack`: posts a message to a channel through an incoming webhook.

The address of the webhook is a secret: it is all that is needed to post. Errors name the host only.
Source: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from flowengine.sdk import CallSignature, HttpError, Plain, StepContext, StepKind, ValidationError
from flowengine_nodes.message_texts import ARGS, OutgoingMessage, message_of
from flowengine_nodes.tool_schemas import TEXT

LONGEST = 3000
"""Maximum length of a text in Slack."""


class Slack(StepKind):
    """Posts a message to a channel."""

    secrets = ("webhook",)
    takes_arguments = True

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `slack`."""
        return {
            "type": "object",
            "x-main": "webhook",
            "properties": {
                "webhook": {
                    **TEXT,
                    "description": "The address of the incoming webhook, a secret.",
                    "examples": ["${{ secrets.SLACK_WEBHOOK }}"],
                }
            },
            "required": ["webhook"],
            "additionalProperties": False,
        }

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments of a message."""
        return CallSignature(ARGS, {"type": "null"}, description="Post a message to Slack.")

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Post a message.

        Args:
            context: The attempt.
            task: Nothing of interest.
            input: `args`, and those that the flow fixes. `configuration` contains `webhook`.

        Returns:
            None.

        Raises:
            HttpError: Slack refused the message, or there was no response.
            Timeout: Slack stopped responding.
            ValidationError: There is no message, or no address.
        """
        from flowengine_nodes.http import Http

        message = message_of({**input["args"], **input.get("bind", {})})
        url = input["configuration"]["webhook"]
        host = urlsplit(url).hostname
        request = {"method": "POST", "url": url, "body": {"text": _text(message)}}
        try:
            await Http().execute(context, {"idempotency_header": False}, request)
        except HttpError as error:
            status = (error.data or {}).get("status")
            what = "did not respond" if status is None else f"answered with status {status}"
            raise HttpError(
                f"{host} {what}",
                data={"status": status},
                retryable=error.retryable,
                retry_after=error.retry_after,
            ) from None
        except ValidationError:
            raise ValidationError("the address of the webhook is not valid") from None
        return None


def _text(message: OutgoingMessage) -> str:
    """Return a message in Slack's notation, in which only `&`, `<` and `>` have to be escaped."""
    text = message.text if message.link is None else message.text.replace(message.link, "")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}…"
    title = message.subject.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"*{title}*\n{text}" + (f"<{message.link}>" if message.link else "")
