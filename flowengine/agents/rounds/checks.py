"""The stages in which tools check messages and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.agents.call_answers import data_text, reason
from flowengine.agents.models.port import Message
from flowengine.agents.rounds.parts import Result, RoundParts, check_lasting
from flowengine.agents.termination import IDLE, NO_END
from flowengine.sdk import Plain


class Checks(RoundParts):
    """The stages in which tools check messages and answers."""

    def begin(self) -> Result | None:
        """Check the newest message of the user."""
        if self.s.reply is not None:
            return self._call()  # one round calls the model once
        self._to("check", 0)
        return None

    def check(self, number: int) -> Result | None:
        checks = [check for check in self.agent.get("before", ()) if not check["beside"]]
        if number == len(checks):
            self._to("beside")
            return None
        answers = self._take()
        if answers is None:
            return self._call(self._check_call(checks[number]))
        if not self._refused(checks[number], answers[0]):
            self._to("check", number + 1)
        return None

    def beside(self) -> Result | None:
        """Check the message beside the first request to the model."""
        checks = [check for check in self.agent.get("before", ()) if check["beside"]]
        answers = self._take() if checks else None
        held = self._held()
        if checks and answers is None:
            calls = [{**self._check_call(check), "ends": True} for check in checks]
            calls.append(self._own("ahead", held=[*held]))
            return self._call(*({**call, "beside": True} for call in calls))
        if answers is not None:
            check_lasting(answers[-1])
        for check, answer in zip(checks, answers or (), strict=False):
            withdrawn = (answer.get("error") or {}).get("type") == "Cancelled"
            if not withdrawn and self._refused(check, answer):
                return None
        if answers is not None and isinstance(answers[-1].get("output"), Mapping):
            self.ahead = answers[-1]["output"]
        self._join(held)
        self._to("enter")
        return None

    def _check_call(self, check: Mapping[str, Any], answer: Plain = None) -> Result:
        given = {"prompt": self._prompt, "answer": answer}
        return {"callee": check["step"], "args": {name: given[name] for name in check["arguments"]}}

    def _held(self) -> list[Message]:
        """Return the message that joins the conversation only after its checks."""
        held = self.chats and self.s["held"] and self.s["asked"] >= self.s.size
        return [{"role": "user", "content": self.s["held"]}] if held else []

    def _join(self, held: Sequence[Message]) -> None:
        self.s.add(*held)
        self.s["held"] = ""

    def _refused(self, check: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
        """Apply the result of a check of a message, and return whether that ends the work."""
        error = answer.get("error")
        if error is None:
            return False
        if self._spend(error):
            return True
        if not check["tells"]:
            why = f"{check['check']} refused what was asked: {error['type']}: {error['message']}"
            self._end_badly(why, *self._refusing)
            return True
        self._join(self._held())
        said = f"A check of what was asked says: {reason(error)}"
        self.s.add({"role": "user", "content": said})
        return False

    @property
    def _refusing(self) -> list[str]:
        """The stage after a check that ends the work."""
        return ["person"] if self.chats else ["final"]

    def after(self, number: int) -> Result | None:
        """Check the answer, one check after the other."""
        checks, s = self.agent.get("after", ()), self.s
        if number == len(checks):
            if checks:
                s["text"] = data_text(s["end"]["value"])
            self._to("end")
            return None
        answers = self._take()
        if answers is None:
            return self._call(self._check_call(checks[number], s["end"]["value"]))
        error = answers[0].get("error")
        if error is None:
            self._to("after", number + 1)
        elif not self._spend(error):
            self._answer_refused(checks[number], error)
        return None

    def _answer_refused(self, check: Mapping[str, Any], error: Mapping[str, Any]) -> None:
        """Tell the model why its answer was refused.

        The refused answer is always followed by the reason. In a chat, for example, the model can
        see both later, and must not assume that the user has read that answer.
        """
        s = self.s
        why = f"{check['check']} refused the answer: {error['type']}: {error['message']}"
        said = f"A check refused your answer: {reason(error)}"
        goes_on = check["tells"] and not self._over and s["refused"] < IDLE
        s.add({"role": "user", "content": f"{said}\nAnswer again." if goes_on else said})
        if goes_on:
            s["end"], s["text"], s["refused"] = NO_END, "", s["refused"] + 1
            self._to("enter")
        elif check["tells"] and self._over:
            s["end"], s["text"] = {**NO_END, "reason": why}, ""
            self._to("end")
        elif check["tells"]:
            why = f"{IDLE + 1} times, the last time as {why}"
            self._end_badly(why, *self._refusing, no_progress=True)
        else:
            self._end_badly(why, *self._refusing)
