"""The outcomes of a step (docs/language.md: Actions)."""

from __future__ import annotations

from typing import NamedTuple

from flowengine import registry
from flowengine.flow.compile.plan import Info
from flowengine.flow.models import Approval, Choice, Wait
from flowengine.flow.models.kinds import generates

FAILED = "failed"
"""The outcome of a step that continues although it has failed."""


class Outcomes(NamedTuple):
    """The outcomes of a step."""

    plain: list[str]
    """Outcomes that are not errors."""
    raising: dict[str, str]
    """Outcomes that raise unless `next` routes them → the error."""

    @property
    def names(self) -> list[str]:
        return [*self.plain, *self.raising]


def outcomes(info: Info) -> Outcomes:
    """Return the outcomes of a step.

    Args:
        info: The step.

    Returns:
        Those of its action, and those added by `when` and `on_error`.
    """
    model = info.model
    plain, raising = ["ok"], dict[str, str]()
    if model.map is None or info.each:
        if isinstance(info.given, Approval):
            plain, raising = of_approval(info.given)
        elif isinstance(info.given, Wait):
            ids = [alternative.id for alternative in info.given.first or ()]
            plain = ids if len(ids) > 1 else ["ok"]
            raising = {} if model.timeout is None else {"timeout": "Timeout"}
        elif info.action in model.kinds and generates(info.action):
            kind = registry.kind_class(info.action)
            plain, raising = list(kind.outcomes), dict(kind.raises)
        elif info.makes_calls and model.next is not None:
            plain += [name for name in model.next.outcome or () if name != "else"]
    if model.when is not None:
        plain = [*plain, "skipped"]
    if model.on_error == "continue":
        plain = [*plain, FAILED]
    elif isinstance(model.on_error, list) and any(
        handler.has("output") for handler in model.on_error
    ):
        plain = list(dict.fromkeys([*plain, "ok"]))
    return Outcomes(plain, raising)


def of_approval(approval: Approval) -> tuple[list[str], dict[str, str]]:
    """Return the outcomes of an approval: plain ones, and raising ones with their errors."""
    plain = [c.id for c in approval.choices if counts_as(c) != "reject"]
    raising = {c.id: "Rejected" for c in approval.choices if counts_as(c) == "reject"}
    if approval.expires is not None and approval.expires.then is None:
        raising["expired"] = "Expired"
    return plain, raising


def counts_as(choice: Choice) -> str:
    """Return the effect of a choice: `approve`, `reject` or `other`."""
    if choice.counts_as is not None:
        return choice.counts_as
    return choice.id if choice.id in {"approve", "reject"} else "other"
