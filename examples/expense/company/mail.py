"""Mail without a mail server: messages are appended to a file, one line of JSON each."""

from __future__ import annotations

import json
import os
from pathlib import Path


def send(to: str, text: str, password: str) -> None:
    """Send a message to a person.

    Args:
        to: The address.
        text: The message.
        password: Password of the mail account, bound by the flow and hidden from approvers.

    Raises:
        PermissionError: The password is empty.
    """
    if not password:
        raise PermissionError("the mail account needs a password")
    outbox = Path(os.environ.get("OUTBOX", "outbox.jsonl"))
    with outbox.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"to": to, "text": text}, ensure_ascii=False) + "\n")
