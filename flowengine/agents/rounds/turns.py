"""The stages of a turn: hooks, the model, and where its reply leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flowengine.agents import background
from flowengine.agents.call_answers import as_text, data_text, reason, text_of, value_of
from flowengine.agents.context_reduction import SUMMARIZE, reduction
from flowengine.agents.hook_results import calls_seen, hook_said, refused
from flowengine.agents.rounds.checks import Checks
from flowengine.agents.rounds.parts import AskModel, LastingError, Result, Summarize, shown_cut
from flowengine.agents.termination import NO_END, ended

FALLBACK = ("ModelError", "RateLimited", "Timeout", "ContextWindowExceeded")
"""Errors after which the next model is called."""
_READ = frozenset({"calls", "told", "idle", "found", "end"})
"""Parts of a reply that are in the state instead."""


class Turns(Checks):
    """The stages of a turn: hooks, the model, and where its reply leads."""

    def enter(self) -> Result | None:
        """Take what users and background agents have said, then begin the turn."""
        s = self.s
        if s.reply is not None:
            return self._call()  # one round calls the model once
        if s.flow["paused"]:
            return {**s.changes(), "waits": True}
        self._answers = None
        if len(s.flow["steered"]) > s["heard"] and s.turns > s["begun"]:
            self._to("hear")
            return None
        if self.agent["starts"]:
            s.add(*background.news(s))
        s["choice"] = {}
        self._to("before_turn", 0)
        return None

    def before_turn(self, number: int) -> Result | None:
        hooks, s = self._hooks("before_turn"), self.s
        if number == len(hooks):
            self._to("model")
            return None
        hook, answers = hooks[number], self._take()
        if answers is None:
            tokens = s.last.get("tokens", 0)
            return self._call(self._hook(hook, self._turn + 1, messages=[*s.all], tokens=tokens))
        error = answers[0].get("error")
        if error is not None:
            if not self._spend(error):
                why = f"{hook['tool']} refused the turn: {reason(error)}"
                self._end_badly(why, "end")
            return None
        said = hook_said(
            answers[0]["output"], model=str, tools=list, tool_choice=str, say=str, answer=object,
            refuse=str,
        )  # fmt: skip
        chosen = {name: said[name] for name in ("model", "tools", "tool_choice") if name in said}
        s["choice"] = {**s["choice"], **chosen}
        if "say" in said:
            s.add({"role": "user", "content": said["say"]})
        self._to("before_turn", number + 1)
        if "refuse" in said:
            self._end_badly(f"{hook['tool']} refused the turn: {said['refuse']}", "end")
        elif "answer" in said:
            s["end"], s["text"] = ended("resolved", said["answer"]), data_text(said["answer"])
            self._to("after", 0)
        return None

    def model(self) -> AskModel | Result | None:
        """Call the model, unless that has just failed."""
        if self._caught is None:
            return AskModel()
        return self._caught_by(self._failed)

    def _caught_by(self, decide: Callable[[Mapping[str, Any]], None]) -> Result | None:
        """Decide what follows the error of the last round.

        The round ends with that, as what follows may fail, too.
        """
        error, self._caught = self._caught, None
        assert error is not None
        if self._spend(error):
            return None
        decide(error)
        return self._call()

    def _failed(self, error: Mapping[str, Any]) -> None:
        s, data = self.s, error.get("data")
        closed = data.get("check") if isinstance(data, Mapping) else None
        check = next((one for one in self.agent.get("after", ()) if one["check"] == closed), None)
        turn = f"{s.turns}/{s['model_at']}"
        if check is not None and isinstance(data, Mapping):
            s["measured"] = ""
            s.add({"role": "assistant", "content": data["text"]})
            self._answer_refused(check, error)
        elif (
            error["type"] == "ContextWindowExceeded"
            and self.agent["context"] is not None
            and s["reduced"] != turn
        ):
            s["full"] = data
            self._to("reduce", turn)
        else:
            self._save(error)

    def _save(self, error: Mapping[str, Any]) -> None:
        """Go on with the next model, if there is one."""
        if error["type"] in FALLBACK and self.s["model_at"] < len(self.agent["models"]) - 1:
            self.s["model_at"] += 1
            self._to("model")
        else:
            self._give_up(error)

    def _give_up(self, error: Mapping[str, Any]) -> None:
        """Show an error to the person of a chat, or end with it."""
        if not self.chats:
            raise LastingError(error)
        self.s["failed"], self.s["model_at"] = f"{error['type']}: {error['message']}", 0
        self._to("person")

    def reduce(self, turn: str) -> Result | Summarize | None:
        """Shorten the conversation, which no longer fits the model."""
        s, about = self.s, self.agent["context"]
        answers = self._take()
        if answers is not None:
            error = answers[0].get("error")
            if error is None:
                s["summary"] = as_text(value_of(answers[0]["output"]))
                self._to("model")
            elif not self._spend(error):  # nothing is left out without a summary
                s["mark"], s["earlier_replies"] = s["full"]["from"], s["full"]["replies"]
                s["window"], s["reduced"] = s["full"]["window"], ""
                self._give_up(error)
            return None
        if self._caught is not None:
            return self._caught_by(self._save)
        cut = reduction(s.seen(), about)
        if about["rule"] == SUMMARIZE and cut["left_out"]:
            return Summarize(cut, turn)
        return self.cut(cut, turn)

    def cut(self, cut: Mapping[str, Any], turn: str) -> Result:
        """Store a reduction, and return the result of its round."""
        s, tool = self.s, self.agent["context"].get("tool")
        before, after = s["mark"], cut["mark"]
        self._move(cut)
        s["reduced"] = turn
        if "summary" in cut:
            s["summary"] = cut["summary"]
        self._to("model")
        calls: list[Result] = []
        if tool is not None and (cut["left_out"] or not self.agent["context"]["clear"]):
            calls = [self._summary_call(tool, before, after)]
            self._to("reduce", turn)
        return self._call(*calls, **shown_cut(cut))

    def _move(self, cut: Mapping[str, Any]) -> None:
        s = self.s
        s["full"] = {
            "from": s["mark"],
            "to": cut["mark"],
            "replies": s["earlier_replies"],
            "window": s["window"],
        }
        s["mark"], s["earlier_replies"] = cut["mark"], cut["replies"]
        s["window"], s["measured"] = cut["window"], ""

    def _summary_call(self, tool: Mapping[str, Any], begin: int, end: int) -> Result:
        given = {"messages": [*self.s.all[begin:end]], "summary": self.s["summary"]}
        return {"callee": tool["step"], "args": {name: given[name] for name in tool["arguments"]}}

    def replied(self, output: Mapping[str, Any]) -> Result:
        """Take the reply of the model, and go on.

        Args:
            output: As `reply_reading` reads it.
        """
        s, content = self.s, output["message"].get("content")
        end = output.get("end")
        s["end"] = NO_END if end is None else end if "value" in end else {**end, "value": content}
        s["text"] = "" if self.agent.get("after") else content or s["text"]
        s["calls"], s["idle"] = output["calls"], output.get("idle", 0)
        if output.get("found"):
            s["found"] = [*s["found"], *output["found"]]
        s["measured"] = "" if self.ahead is not None else self.name
        s.usage, s.model = output.get("usage", {}), output["model"]
        s.reply = output["message"]
        s.add(*output.get("told", ()))
        self._to("after_turn", 0)
        shown = [call["refused"] for call in output["calls"] if "refused" in call]
        made = self.go()
        assert isinstance(made, dict)
        if shown:
            made["refused"] = shown  # for people: the model reads it in the conversation
        return {**{name: part for name, part in output.items() if name not in _READ}, **made}

    def go(self) -> Any:
        raise NotImplementedError

    def after_turn(self, number: int) -> Result | None:
        hooks, s = self._hooks("after_turn"), self.s
        if number == len(hooks):
            self._to("lead")
            return None
        hook, answers = hooks[number], self._take()
        if answers is None:
            text, tokens = text_of(s.last_reply.get("content")), s.last.get("tokens", 0)
            calls = calls_seen(s["calls"])
            return self._call(self._hook(hook, self._turn, text=text, calls=calls, tokens=tokens))
        error = answers[0].get("error")
        if error is not None and self._spend(error):
            return None
        result = answers[0]["output"] if error is None else {"refuse": reason(error)}
        said = hook_said(result, refuse=str, answer=object)
        why = f"{hook['tool']} has answered in place of the model."
        if "refuse" in said:
            why = f"{hook['tool']} refused the reply: {said['refuse']}"
            s["end"], s["text"] = NO_END, ""
            if not s["calls"]:
                s.add({"role": "user", "content": f"{why}\nAnswer again."})
        elif "answer" in said:
            s["end"], s["text"] = ended("resolved", said["answer"]), data_text(said["answer"])
        if said:
            s["calls"] = [refused(call, why) for call in s["calls"]]
        self._to("after_turn", number + 1)
        return None

    def lead(self) -> Result | None:
        """Go where the reply leads."""
        s = self.s
        if s["calls"]:
            self._to("before_call", 0)
            if not self.agent["executes"]:
                self._to("final")
        elif s["end"]["outcome"] == "resolved" or s["end"]["value"] is not None:
            self._to("after", 0)
        elif s["end"]["outcome"] or self._over:
            self._to("end")
        else:
            self._to("enter")
        return None
