"""The settings of a step about its call, and the modifiers of the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flowengine.flow.compile.callee import Callee, Home
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.tools import repeating
from flowengine.flow.compile.types import ERROR, TEXT, VisibleNames, differs, words
from flowengine.flow.models import Compensation, Defaults, Loc, Retry, Step
from flowengine.kernel.graph.specs import RetrySpec, StepSpec

# The settings of a step or a compensation about its call.


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
    needs: Sequence[str] = ()


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
        model.needs,
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


# Modifiers of a call: its effect, retry, timeout, and treatment after a crash.
#
# The step's own modifiers take precedence, then those of the tool, then the defaults of the tool's
# file.


class CallModifiers:
    """Compiles the modifiers of calls.

    Args:
        defaults: Defaults of the calling flow.
        expressions: Compiles their values.
    """

    def __init__(self, defaults: Defaults, expressions: Expressions) -> None:
        self.defaults = defaults
        self.expressions = expressions

    def write(
        self, spec: StepSpec, request: CallRequest, callee: Callee, view: VisibleNames
    ) -> None:
        """Write the effect, needs, limits, retry and timeout of a call."""
        # A declaration uses the defaults of the file that contains it.
        home = callee.home or Home(self.expressions, view, self.defaults)
        defaults = home.defaults
        effect = self.effect(request, callee)
        spec["effect"] = effect  # type: ignore[typeddict-item]
        if callee.limits is not None:
            spec["limits"] = callee.limits
        if callee.preview is not None:
            spec["preview"] = callee.preview
        on_crash = request.on_crash or callee.on_crash or defaults.on_crash
        if on_crash is not None:
            spec["on_crash"] = on_crash  # type: ignore[typeddict-item]
        if needs := sorted({*request.needs, *callee.needs}):
            spec["needs"] = needs
        repeatable = effect != "once" or callee.key is not None
        retry = self.declared_retry(spec, request, callee, view, repeatable)
        if not retry and repeatable and defaults.retry is not None:
            spec["retry"] = self.retry(defaults.retry, home.view, home.expressions)
        timeout = request.timeout or callee.timeout
        if timeout is not None:
            self.timeout(spec, timeout, (*request.loc, "timeout"), view, self.expressions)
        elif defaults.timeout is not None:
            loc = (*defaults.loc, "timeout")
            self.timeout(spec, defaults.timeout, loc, home.view, home.expressions)

    def timeout(
        self, spec: StepSpec, timeout: str, loc: Loc, view: VisibleNames, expressions: Expressions
    ) -> None:
        """Write a timeout."""
        typed = expressions.value(timeout, loc, view)
        spec["timeout"] = typed.value
        if differs(typed.schema, TEXT):
            message = f"expected {words(TEXT)}, got {words(typed.schema)}"
            expressions.report.at("E103", message, loc)

    def declared_retry(
        self,
        spec: StepSpec,
        request: CallRequest,
        callee: Callee,
        view: VisibleNames,
        repeatable: bool = True,
    ) -> bool:
        """Write the `retry` of the step or its tool, and return whether one of them has it."""
        retry, expressions = request.retry, self.expressions
        if retry is None and callee.retry is not None:
            retry = callee.retry
            if callee.home is not None:
                expressions, view, _ = callee.home
        if retry is None:
            return False
        if retry.attempts > 1 and not repeatable:
            message = f"{request.name} is retried, but its effect is once"
            hint = repeating(callee.kind)
            expressions.report.at("E404", message, retry.loc, hint, key=True)
        spec["retry"] = self.retry(retry, view, expressions)
        return True

    def retry(
        self, model: Retry, view: VisibleNames, expressions: Expressions | None = None
    ) -> RetrySpec:
        """Return the compiled form of `retry`, whose `when` sees the error."""
        expressions = expressions or self.expressions
        spec = RetrySpec(
            attempts=model.attempts,
            delay=model.delay,
            backoff=model.backoff,
            max_delay=model.max_delay,
            jitter=model.jitter,  # type: ignore[typeddict-item]
        )
        if model.only is not None:
            spec["only"] = list(model.only)
        if model.except_ is not None:
            spec["exclude"] = list(model.except_)
        if model.when is not None:
            seen = view.having({"error": ERROR})
            spec["when"] = expressions.condition(model.when, (*model.loc, "when"), seen)
        return spec

    def effect(self, request: CallRequest, callee: Callee) -> str:
        """Return the effect of a call: that of the step, its tool, the defaults or the kind."""
        defaults = self.defaults if callee.home is None else callee.home.defaults
        found = request.effect or callee.effect or defaults.effect or callee.default_effect
        return str(found)
