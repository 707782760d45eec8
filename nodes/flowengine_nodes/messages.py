"""`slack`, `smtp` and `webhook`: messages to users and services, from arguments or notices."""

from __future__ import annotations

import json
import smtplib
import time
from collections.abc import Mapping
from email.message import EmailMessage
from html import escape
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flowengine.sdk import (
    CallSignature,
    HttpError,
    Plain,
    StepContext,
    StepKind,
    Synonym,
    Timeout,
    ToolError,
    ValidationError,
    printable,
)
from flowengine.sdk.texts.visible_text import printable_lines
from flowengine.sdk.tools.schemas import TEXT, record
from flowengine.sdk.web.signatures import signature, signing_key
from flowengine_nodes.http import Http
from flowengine_nodes.http_bodies import KEY_HEADER

# Texts of messages to users, from arguments or from a notification.

LONGEST_SUBJECT = 200
LONGEST_TEXT = 20_000
_LONGEST_DATA = 4000
_WORDS = {"opened": "Decision needed", "reminded": "Reminder", "escalated": "Escalated"}
"""Reason of a notification → the beginning of its subject."""


def arguments(own: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the JSON Schema of the arguments of a tool that sends notifications.

    Args:
        own: Its other arguments: the schema of each.
    """
    instead = " and ".join(f"`{name}`" for name in own)
    about = {"approval": "An approval to notify about", "execution": "An execution that has ended"}
    notices = {
        name: {"type": "object", "description": f"{what}, instead of {instead}."}
        for name, what in about.items()
    }
    return {"type": "object", "properties": {**own, **notices}, "additionalProperties": False}


ARGS = arguments(
    {
        "subject": {**TEXT, "description": "The subject, on one line."},
        "text": {**TEXT, "description": "The text."},
    }
)
"""The arguments of a message to users."""


class OutgoingMessage(NamedTuple):
    """A message."""

    subject: str
    """On one line, without control characters."""
    text: str
    """Its text. It ends with the link, if there is one."""
    link: str | None
    """Where it can be acted upon."""


def message_of(args: Mapping[str, Any]) -> OutgoingMessage:
    """Return the message that arguments describe.

    Args:
        args: `{subject?, text}`, `{approval}` or `{execution}`.

    Raises:
        ValidationError: Both are missing.
    """
    approval = args.get("approval")
    if approval is not None:
        subject = f"{_WORDS.get(approval.get('why'), 'Approval')}: {approval.get('title') or ''}"
        link = approval.get("link")
        return OutgoingMessage(_line(subject), printable_lines(_text_of(approval)), link)
    execution = args.get("execution")
    if execution is not None:
        ended = f"Execution {execution.get('status')}"
        subject = f"{ended}: {execution.get('flow')} {execution.get('id')}"
        text = printable_lines(_text_of_end(execution))
        return OutgoingMessage(_line(subject), text, execution.get("link"))
    if not args.get("text"):
        raise ValidationError(
            "a message needs a 'text', or the 'approval' or 'execution' of a notification"
        )
    text = printable_lines(args["text"])
    return OutgoingMessage(_line(str(args.get("subject") or text)), text, None)


def _text_of(approval: Mapping[str, Any]) -> str:
    parts = [str(approval.get("title") or ""), str(approval.get("body") or "")]
    if approval.get("subject") is not None:
        parts.append(_data(approval["subject"]))
    facts = [f"Flow: {approval.get('flow')}, execution {approval.get('execution')}"]
    if approval.get("assignees"):
        facts.append(f"For: {', '.join(map(str, approval['assignees']))}")
    if approval.get("due"):
        facts.append(f"Until: {approval['due']}")
    link = approval.get("link")
    facts.append(f"Decide: {link}" if link else f"Show: flowengine show {approval.get('id')}")
    head = "\n\n".join(part for part in parts if part)
    return f"{head[:LONGEST_TEXT]}\n\n" + "\n".join(facts)


def _text_of_end(execution: Mapping[str, Any]) -> str:
    error, outputs = execution.get("error"), execution.get("outputs")
    at = f" at {error['step']}" if error and error.get("step") else ""
    parts = [f"{error['type']}{at}: {error['message']}"[:LONGEST_TEXT]] if error else []
    parts += [_data(outputs)] if outputs else []
    facts = [f"Flow: {execution.get('flow')}, from {execution.get('started_at')} to "
             f"{execution.get('ended_at')}"]  # fmt: skip
    link = execution.get("link")
    facts.append(f"Open: {link}" if link else f"Show: flowengine show {execution.get('id')}")
    return "\n\n".join([*parts, "\n".join(facts)])


def _data(value: Any) -> str:
    data = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return data if len(data) <= _LONGEST_DATA else f"{data[:_LONGEST_DATA]} …"


def _line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST_SUBJECT else f"{line[: LONGEST_SUBJECT - 1]}…"


# `slack`: posts a message to a channel through an incoming webhook.
#
# The address of the webhook is a secret: it is all that is needed to post. Errors name the host
# only. Source: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks

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
            **record(
                {
                    "webhook": {
                        **TEXT,
                        "description": "The address of the incoming webhook, a secret.",
                        "examples": ["${{ secrets.SLACK_WEBHOOK }}"],
                    }
                },
                ["webhook"],
            ),
            "x-main": "webhook",
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
            ValidationError: The message or the address is missing.
        """
        message = message_of({**input["args"], **input.get("bind", {})})
        request = {"url": input["configuration"]["webhook"], "body": {"text": _text(message)}}
        await deliver(context, request)
        return None


async def deliver(context: StepContext, request: Mapping[str, Any]) -> None:
    """Post to a webhook, whose address is a secret. Errors name its host only.

    Args:
        context: The attempt.
        request: Its `url`, `body` and, if any, `headers`.

    Raises:
        HttpError: It was refused or redirected, or there was no response.
        Timeout: The server stopped responding.
        ValidationError: The address is not valid.
    """
    headers = {KEY_HEADER: None, **request.get("headers", {})}
    sent = {"method": "POST", **request, "headers": headers}
    try:
        await Http().execute(context, {"accept": [*range(200, 300)]}, sent)
    except HttpError as error:
        status = (error.data or {}).get("status")
        what = "did not respond" if status is None else f"answered with status {status}"
        raise HttpError(
            f"{urlsplit(request['url']).hostname} {what}",
            data={"status": status},
            retryable=error.retryable,
            retry_after=error.retry_after,
        ) from None
    except ValidationError:
        raise ValidationError("the address of the webhook is not valid") from None


def _text(message: OutgoingMessage) -> str:
    """Return a message in Slack's notation, in which only `&`, `<` and `>` have to be escaped."""
    text = message.text if message.link is None else message.text.replace(message.link, "")
    text = escape(text, quote=False)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}…"
    link = f"<{message.link}>" if message.link else ""
    return f"*{escape(message.subject, quote=False)}*\n{text}{link}"


# `smtp`: sends mail through a server.
#
# The recipients are those of the configuration: a model and the data of a question cannot choose
# them. Credentials are sent over TLS only, except to this machine. The Message-ID follows from the
# step's idempotency key, so that repeated mail can be recognized (RFC 5322, 3.6.4).

SECONDS = 30.0
"""Time limit of each exchange with the server."""
_PORTS = {"smtp": 587, "smtps": 465, "smtp+plain": 25}
"""Scheme of an address → its port: with STARTTLS, with TLS from the beginning, without TLS."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST_REPLY = 300


class Smtp(StepKind):
    """Sends mail."""

    secrets = ("username", "password")
    takes_arguments = True
    synonyms = (
        Synonym("server host hostname relay", "write 'url: smtp://mail.example.com'", "url"),
        Synonym("user login", "write 'username: …'", "username"),
        Synonym("sender", "write 'from: flows@example.com'", "from"),
        Synonym("recipients recipient", "write 'to: [ana@example.com]'", "to"),
        Synonym("security tls ssl encryption", "write 'url: smtps://mail.example.com'", "url"),
    )

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `smtp`."""
        return record(
            {
                "url": {
                    **TEXT,
                    "description": "The server: `smtp://` requires STARTTLS (port 587), `smtps://` "
                    "TLS (465). `smtp+plain://` uses neither (25), and credentials are then sent "
                    "to this machine only.",
                    "examples": ["smtp://mail.example.com", "smtps://mail.example.com:2465"],
                },
                "username": {**TEXT, "examples": ["flows"]},
                "password": {**TEXT, "examples": ["${{ secrets.MAIL_PASSWORD }}"]},
                "from": {
                    **TEXT,
                    "description": "The sender.",
                    "examples": ["Flows <flows@example.com>"],
                },
                "to": {
                    "anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}],
                    "description": "The recipients.",
                    "examples": [["ana@example.com", "ben@example.com"]],
                },
            },
            ["url", "from", "to"],
        )

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments and the result of sending mail."""
        returns = record({"id": TEXT})
        return CallSignature(ARGS, returns, description="Send mail to fixed recipients.")

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Send a message.

        Args:
            context: The attempt.
            task: Nothing of interest.
            input: `args`, and those that the flow fixes. `configuration` contains the settings.

        Returns:
            `{id}`, the Message-ID.

        Raises:
            ToolError: The server cannot be reached, or refused the message.
            Timeout: The server stopped responding.
            ValidationError: The message is missing, or an address is not valid.
        """
        message = message_of({**input["args"], **input.get("bind", {})})
        settings = input["configuration"]
        server = _server(str(settings["url"]))
        credentials = settings.get("username"), settings.get("password")
        if any(credentials) and server.scheme == "smtp+plain" and server.host not in _LOOPBACK:
            raise ValidationError("credentials are sent over TLS only: write smtp:// or smtps://")
        mail = _mail(settings, message, context.idempotency_key)
        await context.on_thread(lambda: _send(server, credentials, mail), settles=True)
        return {"id": str(mail["Message-ID"])}


class _Server(NamedTuple):
    host: str
    port: int
    scheme: str


def _server(url: str) -> _Server:
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in _PORTS or not host or parts.path.strip("/") or not host.isprintable():
        raise ValidationError("'url' is not smtp://HOST, smtps://HOST or smtp+plain://HOST")
    if parts.username is not None:
        raise ValidationError("'url' has credentials: write them in 'username' and 'password'")
    return _Server(host, port or _PORTS[scheme], scheme)


def _mail(settings: Mapping[str, Any], message: OutgoingMessage, key: str) -> EmailMessage:
    """Return the message to send.

    Raises:
        ValidationError: An address is not valid, for example because it contains a line break.
    """
    import hashlib
    from email.errors import MessageError
    from email.policy import SMTP
    from email.utils import formatdate

    to = settings["to"]
    mail = EmailMessage(policy=SMTP)
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    try:
        mail["From"] = settings["from"]
        mail["To"] = to if isinstance(to, str) else ", ".join(to)
        addresses = [*mail["From"].addresses, *mail["To"].addresses]
        if len(addresses) < 2 or not all(
            address.username and address.domain for address in addresses
        ):
            raise ValueError
    except (ValueError, TypeError, IndexError, MessageError):
        raise ValidationError("'from' or 'to' is not a mail address") from None
    mail["Subject"] = message.subject
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{digest}@flowengine>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no absence is to be reported
    mail.set_content(message.text)
    return mail


def _send(server: _Server, credentials: tuple[Any, Any], mail: EmailMessage) -> None:
    """Send a message.

    Raises:
        ToolError: The server cannot be reached, or refused it.
        Timeout: The server stopped responding.
    """
    import ssl

    place = f"{server.host}:{server.port}"
    try:
        with _connected(server) as connection:
            if any(credentials):
                connection.login(*map(str, credentials))
            refused = connection.send_message(mail)
    except smtplib.SMTPRecipientsRefused as error:
        raise _all_refused(place, error.recipients) from None
    except smtplib.SMTPResponseException as error:
        raise _refused(place, error.smtp_code, error.smtp_error) from None
    except smtplib.SMTPNotSupportedError as error:
        raise ToolError(f"{place}: {printable(error)}", retryable=False) from None
    except ssl.SSLCertVerificationError as error:
        raise ToolError(f"{place}: {error.verify_message}", retryable=False) from None
    except TimeoutError:
        raise Timeout(f"{place} did not respond in {SECONDS:g} s") from None
    except (smtplib.SMTPException, OSError) as error:
        raise ToolError(f"{place}: {printable(error)[:_LONGEST_REPLY]}", retryable=True) from None
    if refused:
        raise _all_refused(place, refused)


def _connected(server: _Server) -> smtplib.SMTP:
    import ssl

    if server.scheme == "smtps":
        trust = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, timeout=SECONDS, context=trust)
    connection = smtplib.SMTP(server.host, server.port, timeout=SECONDS)
    if server.scheme == "smtp":
        try:
            connection.starttls(context=ssl.create_default_context())
        except BaseException:
            connection.close()
            raise
    return connection


def _all_refused(place: str, recipients: Mapping[str, tuple[int, bytes]]) -> ToolError:
    """Return the error about recipients. Another attempt may help if one of them is deferred."""
    code, reply = min(recipients.values(), key=lambda item: item[0])
    return _refused(place, code, reply)


def _refused(place: str, code: int, reply: bytes | str) -> ToolError:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    message = f"{place} answered {code} {printable(text)[:_LONGEST_REPLY]}"
    return ToolError(message, retryable=code < 500)


# `webhook`: reports an event to another service, signed by Standard Webhooks.

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
