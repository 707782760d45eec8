"""Forms that are sent twice, as by a double click, act once: the second answer is the first one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from flowengine.page.view import PageView, new_id
from flowengine.server.calls import ApiCall

COMMAND = "command"
"""Field with the id of a form, a new one each time the form is shown."""
_FORM_TOKEN = "form_token"
_LONGEST = 100


class KeptAnswer(NamedTuple):
    """What is kept of the answer to a form."""

    redirect: str | None
    template: str
    context: dict[str, object]


def form_fields(form_token: str) -> Markup:
    """Return the hidden fields of a form: the token of its session, and the id of its command."""
    field = Markup('<input type="hidden" name="{}" value="{}">')
    return field.format(_FORM_TOKEN, form_token) + field.format(COMMAND, new_id())


def once(
    call: ApiCall,
    path: str,
    given: dict[str, str],
    act: Callable[[ApiCall, dict[str, str]], PageView],
) -> PageView:
    """Return the answer to a form. One that was sent before is answered from what is kept.

    A form that is refused, or changed before it is sent again, is a new command.

    Args:
        call: The request.
        path: The path that it was sent to.
        given: The fields of the form.
        act: Does what the form asks for. Its call has a seed, the same each time.
    """
    command = given.pop(COMMAND, "")[:_LONGEST]
    if not command:
        return act(call, given)
    content = f"{path}\n{urlencode(sorted(given.items()))}".encode()
    digest = hashlib.sha256(content).digest()
    user, records = call.principal.user, call.records
    key = f"page {command} {digest.hex()}"  # no key of the API has a space
    kept = records.begin_answer(user, key, digest, int(time.time() * 1000))
    if kept.status is not None:
        answer = KeptAnswer(*json.loads(kept.body or b"[]"))
        return PageView(answer.template, dict(answer.context), redirect=answer.redirect)
    try:
        view = act(call._replace(seed=kept.seed), given)
    except BaseException:
        records.drop_answer(user, key)
        raise
    if view.redirect is None and not view.is_kept:
        records.drop_answer(user, key)
    else:
        context = view.context if view.is_kept else {}
        body = json.dumps(KeptAnswer(view.redirect, view.template, context))
        records.end_answer(user, key, view.status, body.encode())
    return view
