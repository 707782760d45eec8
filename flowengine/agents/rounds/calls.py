"""The stages in which the calls of a reply are made, and those of programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from flowengine.agents import background
from flowengine.agents.call_answers import ERROR, failure, reason, tool_message
from flowengine.agents.conversation import AnsweredCall, answers_to, id_of, is_answer
from flowengine.agents.hook_results import call_hooked, call_name, call_seen
from flowengine.agents.rounds.parts import Result
from flowengine.agents.rounds.turns import Turns
from flowengine.sdk import Plain


class Calls(Turns):
    """The stages in which the calls of a reply are made, and those of programs."""

    def before_call(self, number: int) -> Result | None:
        """Let a hook see the calls, before the first of them is made."""
        hooks, s = self._hooks("before_call"), self.s
        if number == len(hooks):
            self._to("make")
            return None
        hook, answers = hooks[number], self._take()
        due = [
            place
            for place, call in enumerate(s["calls"])
            if ("args" in call or call["handoff"])
            and not call.get("settled")
            and _meant(hook, call_name(call))
        ]
        if answers is None and due:
            seen = [s["calls"][place] for place in due]
            return self._call(
                *(
                    self._hook(
                        hook, self._turn, tool=call_name(call), arguments=call.get("args", {})
                    )
                    for call in seen
                )
            )
        calls = [*s["calls"]]
        for place, answer in zip(due, answers or (), strict=False):
            said, error = answer.get("output"), answer.get("error")
            if error is not None:
                self._note_spent(error)
                said = {"refuse": reason(error)}
            made = call_hooked(calls[place], said, hook["tool"])
            if (made["step"], made["handoff"]) != (calls[place]["step"], calls[place]["handoff"]):
                made["settled"] = True  # the next hook does not see it
            calls[place] = made
        s["calls"] = calls
        self._to("before_call", number + 1)
        return None

    def _note_spent(self, error: Mapping[str, Any]) -> None:
        if error["type"] == "BudgetExceeded":
            self.s["spent"] = error["message"]

    def make(self) -> Result | None:
        """Make the calls, first that of a program."""
        s = self.s
        running = bool(s["program"])
        call = next((one for one in s["calls"] if one["step"] == f"{self.name}.program"), None)
        if call is not None and not running:
            rest = [one for one in s["calls"] if one is not call]
            s["program"] = {"call": call, "rest": rest, "rounds": 0}
            s["calls"] = []
            self._to("program")
            return None
        made: list[Result] = []
        controls: list[Plain] = []
        for one in s["calls"]:
            why = background.refusal(s, one) if self.agent["starts"] else None
            if why is not None:
                self._tell({**one, "messages": [tool_message(one["id"], one["name"], ERROR + why)]})
            elif not one["step"]:
                self._tell(one)
            elif self.agent["starts"] and one["name"] in background.TOOLS:
                about = {"id": one["id"], "name": one["name"], "args": one["args"]}
                controls.append({**about, "at": len(made)})
                if one["name"] != background.LIST:
                    made.append(self._made(one, keeps=False))
            else:
                made.append(self._made(one, keeps=True))
        s["calls"] = []
        self._to("made", controls)
        if not made:
            return None
        return self._call(*made)

    def _tell(self, call: Mapping[str, Any]) -> None:
        """Answer a call that runs nothing."""
        first, *more = call["messages"]
        about: dict[str, Any] = {"handoff": call["handoff"]} if call["handoff"] else {}
        if call["handoff"] and "args" in call:
            about["context"] = {"handoff": call["args"]}
        about |= {key: call[key] for key in ("value", "ends") if key in call}
        self.s.answer({**first, **about}, *more, of_program=bool(self.s["program"]))

    def _made(self, call: Mapping[str, Any], *, keeps: bool) -> Result:
        """Return a call of a tool, with what its approvers see."""
        s, tool = self.s, self.agent["kinds"].get(call["step"], {})
        messages, asked = s.all, s["asked"]
        made: Result = {"callee": call["step"], "args": call["args"]}
        user = s.place_of(messages[asked]) if 0 <= asked < len(messages) else None
        made["about"] = [user, s.place_of(s.last_reply)]
        if "ask" in call:
            made["about"].append(call["ask"])
            made["asks"] = True
        if keeps:
            known = {"id": call["id"], "name": call["name"]}
            if "kind" in tool:
                known["kind"] = tool["kind"]
            if self._hooks("after_call") or tool.get("starts"):
                known["args"] = call["args"]
            if tool.get("starts"):
                known["starts"] = True
            made["entry"] = known
            if s["program"]:
                made["into"] = "program_answers"
        offered = s.seen()["offer"].get("agents", {}).get(self.name, {}).get(call["name"])
        if offered is not None:
            made["offered"] = {key: offered[key] for key in ("tool", "parameters", "digest")}
        return made

    def made(self, controls: Sequence[Mapping[str, Any]]) -> None:
        """Take the answers, which the state has already."""
        answers, s = self._take() or (), self.s
        for one in controls:
            made = {} if one["name"] == background.LIST else answers[one["at"]]
            error = made.get("error")
            content = background.said(s, one, error)
            s.answer(tool_message(one["id"], one["name"], content), of_program=bool(s["program"]))
        for answered in self._answered():
            call, entry = answered.call, answered.entry
            if "error" in entry:
                self._note_spent(entry["error"])
                s["renew"] = s["renew"] or entry["error"]["type"] == "ToolChanged"
            elif call.get("starts"):
                about = {"id": entry["output"]["execution_id"], "tool": call["name"]}
                s.started.append({**about, "args": call.get("args", {})})
        self._to("after_call", 0)

    def _answered(self) -> list[AnsweredCall]:
        """Return the answers to the calls that were made last, in their order."""
        program = self.s["program"]
        if program:
            asked = self.s.flow["program_calls"][program["since"] :]
            ids = {call["id"] for call in asked}
            entries = [*self.s.flow["program_answers"], *self.s.of_program]
            mine = [entry for entry in entries if id_of(entry) in ids]
            return answers_to({"tool_calls": asked}, mine)
        return answers_to(self.s.last_reply, self.s.since_reply)

    def after_call(self, number: int) -> Result | None:
        """Let a hook see the results of the tools."""
        hooks, s = self._hooks("after_call"), self.s
        if number == len(hooks):
            self._to("settled")
            return None
        hook, answers = hooks[number], self._take()
        due = [
            one
            for one in self._answered()
            if is_answer(one.entry) and _meant(hook, str(one.call["name"]))
        ]
        if answers is None and due:
            return self._call(
                *(
                    self._hook(
                        hook, self._turn, tool=one.call["name"],
                        arguments=one.call.get("args", {}), **call_seen(one.answer),
                    )
                    for one in due
                )
            )  # fmt: skip
        for one, answer in zip(due, answers or (), strict=False):
            said, error = answer.get("output"), answer.get("error")
            if error is not None:
                self._note_spent(error)
                said = {"refuse": reason(error)}
            if said is not None:
                hooked = {"hooked": one.call["id"], "by": hook["tool"], "result": said}
                s.answer(hooked, of_program=bool(s["program"]))
        self._to("after_call", number + 1)
        return None

    def settled(self) -> Result | None:
        """Go where the answers lead."""
        s, answered, program = self.s, self._answered(), self.s["program"]
        if s["spent"]:
            self._to("final")
            return None
        if program:
            self._to("program")
            return None
        to = ""
        for one in answered:
            s.changed_context.update(one.answer["context"])
            to = to or one.answer["handoff"]
        if s["end"]["outcome"] == "resolved" or s["end"]["value"] is not None:
            self._to("after", 0)
        elif s["end"]["outcome"] or self._over:
            self._to("end")
        elif to and to != self.name and to in self.agent["others"]:
            self._to("hand_over", to)
        else:
            self._to("renew" if s["renew"] else "enter")
        return None

    def program(self) -> Result | None:
        """Run a program of the model until it makes calls, or to its end."""
        s, answers, program = self.s, self._take(), self.s["program"]
        call = program["call"]
        if answers is None:
            about = {key: value for key, value in program.items() if key != "rest"}
            return self._call(self._own("program", program=about))
        made, error = answers[0].get("output"), answers[0].get("error")
        if error is not None and self._spend(error):
            return None
        if made is not None and "asks" in made:
            since = len(s.flow["program_calls"])
            begun = {"begun": since, "began": made.get("began")} if "begun" not in program else {}
            s["program"] = {**program, **begun, "since": since}
            s["calls"] = made["asks"]
            s.program_calls = made["asks"]
            self._to("before_call", 0)
            return None
        messages = made["messages"] if made is not None else []
        if error is not None:
            messages = failure(call, error, True)["messages"]
        s["calls"], s["program"] = program["rest"], {}
        s.answer(*messages)
        self._to("make")
        return None


def _meant(hook: Mapping[str, Any], tool: str) -> bool:
    globs = hook.get("tools") or ("*",)
    return any(fnmatchcase(tool, glob) for glob in globs)
