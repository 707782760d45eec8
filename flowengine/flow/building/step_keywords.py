"""The keyword arguments of a step, which are the keys of the language, for editors and mypy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from flowengine.flow.building.expressions import Expr
from flowengine.flow.building.handles import FlowHandle, StepHandle

Text = str | Expr
"""Text that may contain `${{ … }}`, or an expression."""
Condition = str | Expr
Duration = str | timedelta | Expr
Function = str | Callable[..., Any]
"""A function, or its name as `module:function`."""
Spec = Mapping[str, Any]
"""The value of a key in a flow file, which may contain expressions, steps, functions and types."""
Target: TypeAlias = StepHandle | Callable[..., Any] | str


class Modifiers(TypedDict, total=False):
    """Modifiers of the action of a step. See the reference of the language."""

    title: Text
    join: int | str | Expr | Spec
    trigger: str | Spec
    when: Condition
    map: int | str | Expr | Sequence[Any] | Spec
    loop: Spec
    lock: Text | Spec
    retry: int | Spec
    timeout: Duration
    deadline: Duration
    effect: Literal["pure", "idempotent", "once"]
    on_crash: Literal["ask", "retry", "fail"]
    output: Any
    set: Spec
    emit: str | Spec | Sequence[str | Spec]
    on_error: Literal["fail", "continue", "compensate"] | Sequence[Spec]
    compensate: Spec
    next: StepHandle | Callable[..., Any] | str | Spec
    in_: str | Mapping[str, Any]
    environments: Sequence[str | Mapping[str, Any]] | Mapping[str, Any]


class Words(Modifiers, total=False):
    """All keywords of a step: at most one action, and modifiers."""

    call: Function
    python: Function | Spec
    http: str | Spec
    web_search: str | Spec
    run: str | Spec
    agent: object
    """The name of an agent, an `Agent`, or `{"name": …, "max_turns": 5}` with one of these."""
    flow: str | FlowHandle
    detach: bool
    wait: Duration | Spec
    approval: Text | Spec
    group: Sequence[Spec]
    parallel: Sequence[Spec]
    fail: Text | Spec
    cancel: str | Sequence[Any] | Spec
    with_: Spec
    action: Spec
    """An action provided by another package: `action={"sql": {...}}`."""
