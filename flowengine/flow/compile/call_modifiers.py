"""The modifiers of a call: its effect, retry, timeout, and treatment after a crash.

The step's own modifiers take precedence, then those of the tool, then the defaults of the tool's
file.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from flowengine.flow.compile.callee import Callee, Home
from flowengine.flow.compile.expressions import Expressions
from flowengine.flow.compile.plan import Call
from flowengine.flow.compile.tools import repeating
from flowengine.flow.compile.types import ERROR, TEXT, VisibleNames
from flowengine.flow.models import Defaults, Every, Retry
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.specs import RetrySpec
from flowengine.kernel.notation.times import parse_duration


def check_pauses(given: Retry | Every, first: Plain, report: DiagnosticReporter) -> None:
    """Report a first pause, as far as it is known, that is longer than `max_delay`."""
    longest = given.max_delay
    with suppress(ValueError, TypeError, AttributeError):
        if longest is not None and parse_duration(first) > parse_duration(longest):
            message = f"'max_delay' is {longest}, but the first pause has {first}"
            report.at("E103", message, (*given.loc, "max_delay"), "raise it, or lower 'delay'")


@dataclass(eq=False)
class CallModifiers:
    """Compiles the modifiers of calls."""

    defaults: Defaults
    """Defaults of the calling flow."""
    expressions: Expressions
    """Compiles their values."""

    def write(self, call: Call, callee: Callee, view: VisibleNames) -> None:
        """Write the effect, needs, limits, retry and timeout of a call."""
        spec = call.spec
        # A declaration uses the defaults of the file that contains it.
        home = callee.home or Home(self.expressions, view, self.defaults)
        defaults = home.defaults
        effect = self.effect(call, callee)
        spec["effect"] = effect  # type: ignore[typeddict-item]
        if callee.limits is not None:
            spec["limits"] = callee.limits
        if callee.preview is not None:
            spec["preview"] = callee.preview
        on_crash = call.model.on_crash or callee.on_crash or defaults.on_crash
        if on_crash is not None:
            spec["on_crash"] = on_crash  # type: ignore[typeddict-item]
        if needs := sorted({*call.model.needs, *callee.needs}):
            spec["needs"] = needs
        repeatable = effect != "once" or callee.key is not None
        retry = self.declared_retry(call, callee, view, repeatable)
        if not retry and repeatable and defaults.retry is not None:
            spec["retry"] = self.retry(defaults.retry, home.view, home.expressions)
        timeout = call.model.timeout or callee.timeout
        if timeout is not None:
            spec["timeout"] = self.expressions.of_type(timeout, (*call.loc, "timeout"), view, TEXT)
        elif defaults.timeout is not None:
            loc = (*defaults.loc, "timeout")
            spec["timeout"] = home.expressions.of_type(defaults.timeout, loc, home.view, TEXT)

    def declared_retry(
        self,
        call: Call,
        callee: Callee,
        view: VisibleNames,
        repeatable: bool = True,
    ) -> bool:
        """Write the `retry` of the step or its tool, and return whether one of them has it."""
        retry, expressions = call.model.retry, self.expressions
        if retry is None and callee.retry is not None:
            retry = callee.retry
            if callee.home is not None:
                expressions, view, _ = callee.home
        if retry is None:
            return False
        if retry.attempts > 1 and not repeatable:
            message = f"{call.name} is retried, but its effect is once"
            hint = repeating(callee.kind)
            expressions.report.at("E404", message, retry.loc, hint, key=True)
        call.spec["retry"] = self.retry(retry, view, expressions)
        return True

    def retry(
        self, model: Retry, view: VisibleNames, expressions: Expressions | None = None
    ) -> RetrySpec:
        """Return the compiled form of `retry`, whose `when` sees the error."""
        expressions = expressions or self.expressions
        parts: Any = dict(model)
        check_pauses(model, model.delay, expressions.report)
        parts["only"] = parts.pop("type")
        if model.when is not None:
            seen = view.having({"error": ERROR})
            parts["when"] = expressions.condition(model.when, (*model.loc, "when"), seen)
        return cast("RetrySpec", {key: part for key, part in parts.items() if part is not None})

    def effect(self, call: Call, callee: Callee) -> str:
        """Return the effect of a call: that of the step, its tool, the defaults or the kind."""
        defaults = self.defaults if callee.home is None else callee.home.defaults
        found = call.model.effect or callee.effect or defaults.effect or callee.default_effect
        return str(found)
