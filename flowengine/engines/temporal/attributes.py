"""Search attributes and memos of workflows, by which executions and waits are listed and found.

Operators of the namespace can read search attributes, so they contain no data of a flow: only its
id, ids of waits, statuses, and digests of labels. A memo is encoded like all other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from flowengine.errors import StoreError, UsageError
from flowengine.journal.encoding import pack
from flowengine.sdk.sizes import size_text

if TYPE_CHECKING:
    from temporalio.client import Client

    from flowengine.journal.records import NewExecution

STATUS = SearchAttributeKey.for_keyword("FlowengineStatus")
"""The status of an execution. Absent until it first stops running."""
WAITS = SearchAttributeKey.for_keyword_list("FlowengineWaits")
"""The ids of the newest waits of an execution, their prefixes, and the kinds of its open waits."""
FLOW = SearchAttributeKey.for_keyword("FlowengineFlow")
"""The id of the flow."""
LABELS = SearchAttributeKey.for_keyword_list("FlowengineLabels")
"""Digests of its labels, and of the execution that it was forked from."""
CREATED = SearchAttributeKey.for_datetime("FlowengineCreated")
"""When it was created. Workflows that are continued in another run have another time of start."""
SHORT_WAIT = 8
"""Digits of a wait's id by which it is found."""
WAITS_KEPT = 60
"""Number of waits of an execution that are found by their ids. A search attribute is limited to
2,048 bytes."""
OPEN = "open"
"""Stands in `WAITS` of an execution with open waits. `open:KIND` stands for a wait of a kind."""

NEW = "new"
"""Memo: the entry of the new execution, see `NewExecution`."""
HEAD = "head"
"""Memo: status, time of its last change, and when the next timer is due."""
HELD = "held"
"""Memo: whether the execution is not driven yet, because it is being moved here."""
OPEN_WAITS = "waits"
"""Memo: records of the open waits. None if they are too large, and the workflow must be queried."""
MOST_MEMO_BYTES = 38_000
"""Maximum bytes of a memo. A server may refuse more than 40 KiB, and Temporal Cloud does."""

MOST_LABELS = 100
"""Labels of an execution, whose digests are a search attribute."""

_KINDS: dict[SearchAttributeKey[Any], Any] = {
    STATUS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    WAITS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    CREATED: IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    FLOW: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    LABELS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}


def wait_values(ids: Iterable[str], kinds: Iterable[str]) -> list[str]:
    """Return the value of `WAITS`.

    Args:
        ids: Ids of waits, open or closed.
        kinds: Kinds of the open waits.
    """
    values = [part for id in ids for part in (id, id[:SHORT_WAIT])]
    listed = sorted(set(kinds))
    return values + [OPEN] * bool(listed) + [f"{OPEN}:{kind}" for kind in listed]


def label_digests(labels: Mapping[str, str], forked_from: str | None) -> list[str]:
    """Return the value of `LABELS`: labels can contain personal data, so only their digests."""
    digests = [label_digest(name, value) for name, value in labels.items()]
    return digests if forked_from is None else [*digests, fork_digest(forked_from)]


def check_listed(new: NewExecution) -> None:
    """Check that an execution fits into the index of workflows.

    Raises:
        UsageError: Its labels do not.
    """
    count, size = len(new.labels), len(pack([*new]))
    if count > MOST_LABELS or size > MOST_MEMO_BYTES:
        raise UsageError(
            f"the execution has {count} labels, and its entry in lists {size_text(size)}; at most "
            f"{MOST_LABELS} and {size_text(MOST_MEMO_BYTES)} are possible in Temporal"
        )


def label_digest(name: str, value: str) -> str:
    """Return the digest of a label."""
    return sha256(f"{name}={value}".encode()).hexdigest()[:16]


def fork_digest(forked_from: str) -> str:
    """Return the digest of the execution that another was forked from.

    Args:
        forked_from: Its id, followed by a blank and more text or not.
    """
    return sha256(f"fork {forked_from.partition(' ')[0]}".encode()).hexdigest()[:16]


async def is_unused(client: Client, error: RPCError) -> bool:
    """Return whether a namespace has refused a query because no worker has ever run in it.

    Nothing is in its index then. If only some attributes are missing, it is not up to date.

    Args:
        client: Of the namespace.
        error: Its refusal.
    """
    if error.status != RPCStatusCode.INVALID_ARGUMENT or "search attribute" not in error.message:
        return False
    there = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    return not any(key.name in there.custom_attributes for key in _KINDS)


async def register(client: Client) -> None:
    """Add the missing search attributes to the namespace.

    Raises:
        StoreError: The user is not permitted to do so.
    """
    operator, namespace = client.operator_service, client.namespace
    try:
        there = await operator.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace)
        )
        new = {
            key.name: kind
            for key, kind in _KINDS.items()
            if key.name not in there.custom_attributes
        }
        if new:
            request = AddSearchAttributesRequest(namespace=namespace, search_attributes=new)
            await operator.add_search_attributes(request)
    except RPCError as error:
        names = " ".join(f"--name {key.name} --type {_type(kind)}" for key, kind in _KINDS.items())
        raise StoreError(
            f"search attributes cannot be added to namespace {namespace}: {error.message}",
            hint="have its operator add them: temporal operator search-attribute create "
            f"--namespace {namespace} {names}",
        ) from error


def _type(kind: Any) -> str:
    name = IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_")
    return name.title().replace("_", "")
