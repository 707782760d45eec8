"""The compiled form of each action (docs/language.md: Actions)."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowengine.flow.compile.calls import CallCompiler
from flowengine.flow.compile.expressions import Expressions, constant, together
from flowengine.flow.compile.outcomes import of_approval
from flowengine.flow.compile.plan import Info
from flowengine.flow.compile.questions import asked, editable_fields, with_type
from flowengine.flow.compile.types import (
    CANCELLED,
    ERROR,
    INTEGER,
    NOTHING,
    TEXT,
    UNKNOWN,
    Schema,
    VisibleNames,
    closed,
    decision_schema,
    differs,
    list_of,
    signal_schema,
    words,
)
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Alternative, Approval, Cancel, Emit, Fail, Loc, Wait
from flowengine.flow.models.kinds import ASK, works_in_environment
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph.compiled import Value
from flowengine.kernel.graph.specs import AlternativeSpec, EmitSpec, WaitSpec
from flowengine.sdk.texts.near_words import did_you_mean

ANSWER: Schema = {
    "type": "object",
    "properties": {"answer": {"type": "string", "title": "Answer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
"""The default form of a question."""
CONTROL = frozenset({"none", "group", "parallel"})


@dataclass(eq=False)
class Actions:
    """Compiles actions into steps."""

    model: Definition
    expressions: Expressions
    """Compiles their values."""
    calls: CallCompiler
    """Compiles actions that make calls."""
    report: DiagnosticReporter
    signals: set[str] = field(default_factory=set)
    """Signals that a step names."""
    keyless: set[str] = field(default_factory=set)
    """Signals whose key names inputs of another flow of the file."""

    def write(self, info: Info, view: VisibleNames) -> Schema:
        """Write the action of a step.

        Args:
            info: The step.
            view: The names that its expressions see.

        Returns:
            The type of the raw result. It is unknown for a group, until its steps are compiled, and
            for a step whose action may be among the omitted parts.
        """
        self._check_keys(info)
        spec, given = info.spec, info.given
        if info.action in CONTROL:
            spec["action"] = "none" if info.action == "none" else "group"
            spec["kind"] = info.action
            self._step_modifiers(info, view)
            empty = info.action == "none" and not self.model.left_out(info.loc)
            return NOTHING if empty else UNKNOWN
        if info.action == "call" and given == ASK:
            result = self._ask(info, view)
        elif isinstance(given, Wait | Approval | Fail | Cancel):
            spec["kind"] = info.action
            result = self._control(info, view)
        else:
            result = self.calls.write(info, view)
            if spec["action"] == "flow":
                info.flow = self.calls.flows[-1][1]
                info.effect = info.model.effect or self.calls.tools.others.effect(info.flow)
            else:
                info.effect = spec["effect"]
            return result
        self._step_modifiers(info, view)
        return result

    def _control(self, info: Info, view: VisibleNames) -> Schema:
        spec, given = info.spec, info.given
        if isinstance(given, Wait):
            spec["action"] = "wait"
            spec["raises"] = {"timeout": "Timeout"}
            return self._wait(info, given, view)
        if isinstance(given, Approval):
            spec["action"] = "approval"
            return self._approval(info, given, view)
        if isinstance(given, Cancel):
            spec["action"] = "cancel"
            if given.reason is not None:
                reason = self.expressions.value(given.reason, (*given.loc, "reason"), view)
                spec["cancel"]["reason"] = reason.value
            return CANCELLED
        spec["action"] = "fail"
        spec["input"] = self.fail(given, view)
        return NOTHING

    def _step_modifiers(self, info: Info, view: VisibleNames) -> None:
        """Write `retry` and `timeout` of a step that makes no call."""
        info.effect = "pure"
        model, spec = info.model, info.spec
        if model.retry is not None:
            spec["retry"] = self.calls.modifiers.retry(model.retry, view)
        if model.timeout is not None:
            loc = (*info.loc, "timeout")
            spec["timeout"] = self.expressions.of_type(model.timeout, loc, view, TEXT)

    def _check_keys(self, info: Info) -> None:
        """Refuse modifiers that have no meaning for the action."""
        model = info.model
        if info.action == "none" and self.model.left_out(info.loc):
            return  # its action may be among the omitted parts
        calls = info.action not in CONTROL and not isinstance(
            info.given, Wait | Approval | Fail | Cancel
        )
        runs = calls and info.given != ASK
        acts = calls or info.action in {"group", "parallel"}
        refused = {
            "environments": model.environments is not None and not calls,
            "in": model.in_ is not None
            and not (info.action == "call" or works_in_environment(info.action)),
            "needs": bool(model.needs) and not runs,
            "effect": model.has("effect") and not acts,
            "on_crash": model.has("on_crash") and not acts,
        }
        noun = "a step without an action" if info.action == "none" else repr(info.action)
        for key in (key for key, is_refused in refused.items() if is_refused):
            inside = key == "needs" and info.children
            hint = "write it in the steps inside" if inside else "leave it out"
            self.report.at("E103", f"{noun} takes no {key!r}", (*info.loc, key), hint, key=True)

    # fail

    def fail(self, given: Fail, view: VisibleNames) -> Value:
        """Return the compiled form of `fail`, of a step or a handler."""
        if given.error is not None:
            loc = (*given.loc, "error")
            typed = self.expressions.value(given.error, loc, view)
            if differs(typed.schema, ERROR):
                message = f"expected an error, got {words(typed.schema)}"
                hint = "use 'fail: {message: ...}' to raise a new error"
                self.report.at("E103", message, loc, hint)
            return together({"error": typed}).value
        parts = {
            "type": constant(given.type),
            "message": self.expressions.value(given.message, (*given.loc, "message"), view),
            "data": self.expressions.value(given.data, (*given.loc, "data"), view),
            "retryable": constant(given.retryable),
        }
        return together(parts).value

    # wait

    def _wait(self, info: Info, given: Wait, view: VisibleNames) -> Schema:
        several = given.first if given.first is not None else given.all
        if several is None:
            spec, schema = self._alternative(given, "ok", view)
            info.spec["wait"] = WaitSpec(mode="first", alternatives=[spec])
            return schema
        seen: set[str] = set()
        for item in several:
            if item.id in seen:
                message = f"two alternatives have the id {item.id!r}"
                self.report.at(
                    "E105", message, (*item.loc, "id"), "ids are the outcomes of the step"
                )
            seen.add(item.id)
        parts = [self._alternative(item, item.id, view) for item in several]
        mode = "first" if given.first is not None else "all"
        info.spec["wait"] = WaitSpec(
            mode=mode,  # type: ignore[typeddict-item]
            alternatives=[spec for spec, _ in parts],
        )
        if mode == "all":
            return list_of(_result(UNKNOWN))
        return parts[0][1] if len(parts) == 1 else _result(UNKNOWN)

    def _alternative(
        self, given: Wait | Alternative, name: str, view: VisibleNames
    ) -> tuple[AlternativeSpec, Schema]:
        """Return an alternative, and the result of the wait if it occurs."""
        spec = AlternativeSpec(id=name)
        if given.for_ is not None:
            spec["after"] = self.expressions.of_type(given.for_, (*given.loc, "for"), view, TEXT)
        elif given.until is not None:
            spec["until"] = self.expressions.of_type(given.until, (*given.loc, "until"), view, TEXT)
        elif given.signal is not None:
            return spec, self._signal(spec, given, view)
        elif given.when is not None:
            loc = (*given.loc, "when")
            before = len(self.report.diagnostics.errors)
            with self.expressions.noting_state() as keys:
                spec["when"] = self.expressions.condition(str(given.when), loc, view)
            if not keys and len(self.report.diagnostics.errors) == before:
                message = "this uses nothing of 'state', so nothing would ever end the wait"
                self.report.at("E103", message, loc, "name a state key that some step sets")
            elif "*" not in keys:
                spec["watches"] = sorted(keys)
        return spec, _result(NOTHING)

    def _signal(
        self, spec: AlternativeSpec, given: Wait | Alternative, view: VisibleNames
    ) -> Schema:
        name, loc = str(given.signal), given.loc
        spec["signal"] = name
        data = self.signal_data(name, (*loc, "signal"))
        if given.key is not None:
            spec["key"] = self.expressions.of_type(given.key, (*loc, "key"), view, TEXT)
        else:
            self._check_key(name, (*loc, "signal"))
        if given.match is not None:
            seen = view.having({"signal": signal_schema(data)})
            spec["match"] = self.expressions.condition(given.match, (*loc, "match"), seen)
        if given.transient:
            spec["transient"] = True
        if given.count is not None:
            spec["count"] = self.expressions.of_type(given.count, (*loc, "count"), view, INTEGER)
            return list_of(data)
        return _result(data)

    def signal_data(self, name: str, loc: Loc) -> Schema:
        """Return the schema of a signal's data, after reporting an undeclared signal."""
        self.signals.add(name)
        model = self.model.signals.get(name)
        if model is None:
            if ("signals", name) not in self.model.unread:
                hint = (
                    did_you_mean(name, self.model.signals)
                    or f"declare it: 'signals: {{{name}: {{}}}}'"
                )
                self.report.at("E401", f"there is no signal {name!r}", loc, hint)
            return UNKNOWN
        return model.data or UNKNOWN

    def _check_key(self, name: str, loc: Loc) -> None:
        """Refuse a signal's declared key if it names inputs of another flow."""
        if name in self.keyless:
            message = f"the key of {name!r} uses inputs of this file's own flow, not of this one"
            self.report.at("E301", message, loc, "set 'key' here")

    def emit(self, given: Emit, view: VisibleNames) -> EmitSpec:
        """Return the compiled form of a signal that a step or a handler sends."""
        spec = EmitSpec(signal=given.signal)
        schema = self.signal_data(given.signal, (*given.loc, "signal"))
        if given.key is not None:
            spec["key"] = self.expressions.of_type(given.key, (*given.loc, "key"), view, TEXT)
        else:
            self._check_key(given.signal, (*given.loc, "signal"))
        typed = self.expressions.value(given.data, (*given.loc, "data"), view)
        if given.has("data"):
            spec["data"] = typed.value
        if given.to != "execution":
            spec["to"] = self.expressions.of_type(given.to, (*given.loc, "to"), view, TEXT)
            declared = self.model.signals.get(given.signal)
            has_no_key = given.key is None and declared is not None and not declared.key
            if given.to == "all" and has_no_key:
                message = f"the signal {given.signal!r} has no key, so it cannot be sent to all"
                hint = "give it one here: 'key: ...', or where it is declared"
                self.report.at("E103", message, (*given.loc, "to"), hint)
        if differs(typed.schema, schema):
            message = (
                f"the data of {given.signal!r} is {words(schema)}, this is {words(typed.schema)}"
            )
            loc = (*given.loc, "data") if given.has("data") else given.loc
            self.report.at("E103", message, loc)
        return spec

    # approval

    def _approval(self, info: Info, given: Approval, view: VisibleNames) -> Schema:
        _, raising = of_approval(given)
        info.spec["raises"] = raising
        notifies = self.calls.tools.scope.notifications(given)
        parts = asked(self.expressions, given, view, notifies)
        form = with_type(given.form) if given.form is not None else None
        subject = parts["subject"].schema if "subject" in parts else NOTHING
        fields = subject.get("properties")
        if isinstance(given.edit, list) and fields is not None:
            for index, name in enumerate(given.edit):
                if name.partition(".")[0] not in fields and "${{" not in name:
                    message = f"'subject' has no field {name!r}"
                    self.report.at(
                        "E103", message, (*given.loc, "edit", index), did_you_mean(name, fields)
                    )
        editable = editable_fields(given, subject)
        if editable is not None:
            parts["edit_schema"] = constant(editable)
        info.spec["input"] = together(parts).value
        choices = [choice.id for choice in given.choices]
        expires = given.expires is not None and given.expires.then is None
        return decision_schema(subject, form or UNKNOWN, choices, expires)

    # std.ask

    def _ask(self, info: Info, view: VisibleNames) -> Schema:
        """Write a question: a wait with one choice, whose output is the reply."""
        callee = self.calls.tools.find(ASK, (*info.loc, "call"))
        given = self.calls.arguments(info, view)
        if given.whole is not None:
            message = f"{ASK!r} takes its arguments one by one"
            hint = "write 'with: {question: ...}'"
            self.report.at("E103", message, (*info.loc, "with"), hint)
            return UNKNOWN
        if callee is None:
            return UNKNOWN
        self.calls.tools.check_arguments(callee, given, info.loc, ASK)
        info.spec["action"], info.spec["kind"] = "approval", "ask"
        choice = {"id": "answer", "label": "Answer", "counts_as": "approve", "comment": "none"}
        form = given.named.get("form")
        parts = {
            "title": given.named.get("question", constant("")),
            "choices": constant([choice]),
            "form": constant(ANSWER) if form is None else form,
        }
        if form is None:
            parts["field"] = constant("answer")
        info.spec["input"] = together(parts).value
        if form is None:
            return TEXT
        return with_type(form.value[1]) if form.constant else UNKNOWN


def _result(data: Schema) -> Schema:
    """Return the schema of the event that ended a wait."""
    return closed({"id": TEXT, "signal": TEXT, "data": data, "at": TEXT})
