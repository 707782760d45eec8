"""The settings of a step or a compensation about its call."""

from __future__ import annotations

from typing import Any, NamedTuple

from flowengine.flow.models import Compensation, Loc, Retry, Step


class CallRequest(NamedTuple):
    """A step or a compensation that makes a call."""

    name: str
    """Its name in messages."""
    action: str
    given: Any
    """The tool's name, or the configuration of the kind."""
    loc: Loc
    with_: dict[str, Any] | str
    retry: Retry | None
    timeout: str | None
    effect: str | None = None
    on_crash: str | None = None
    detach: bool = False
    in_: dict[str, Any] | None = None
    environments: dict[str, Any] | None = None
    step: str = ""
    """The id of a step."""


def of_step(model: Step) -> CallRequest:
    """Return the request of a step that makes a call."""
    action, given = model.action or ("none", None)
    return CallRequest(
        repr(model.id),
        action,
        given,
        model.loc,
        model.with_,
        model.retry,
        model.timeout,
        model.effect,
        model.on_crash,
        model.detach,
        model.in_,
        model.environments,
        model.id,
    )


def of_compensation(model: Compensation, step: str) -> CallRequest | None:
    """Return the request of a compensation, or None if its call was left out as invalid."""
    kinds = iter(model.kinds.items())
    action, given = next(kinds, ("none", None))
    if model.call or model.flow:
        action, given = ("call", model.call) if model.call else ("flow", model.flow)
    if given is None:
        return None
    name = f"the compensation of {step!r}"
    return CallRequest(
        name, action, given, model.loc, model.with_, model.retry, model.timeout, in_=model.in_
    )
