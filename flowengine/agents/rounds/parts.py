"""What the stages of a round share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.agents.agent_state import AgentState
from flowengine.agents.termination import ended
from flowengine.sdk import Plain

Result = dict[str, Any]


class AskModel(NamedTuple):
    """The round calls the model now."""


class Summarize(NamedTuple):
    """The round has a model summarize the messages that a cut leaves out."""

    cut: dict[str, Any]
    turn: str
    """The turn and model that it is for."""


class LastingError(Exception):
    """The error of an earlier round ends the agent.

    Args:
        error: As in the journal.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class RoundParts:
    """What the stages of a round share.

    Args:
        agent: Constants of the agent.
        state: The state of the agents, which is changed.
        answers: The answers to the calls of the last round.
        caught: The error of the last round, if it failed.
    """

    def __init__(
        self,
        agent: Mapping[str, Any],
        state: AgentState,
        answers: Sequence[Mapping[str, Any]] | None,
        caught: Mapping[str, Any] | None,
    ) -> None:
        self.agent = agent
        self.s = state
        self.name: str = agent["name"]
        self.chats: bool = agent["chats"]
        self.ahead: Mapping[str, Any] | None = None
        """The reply of a request beside checks."""
        self._answers = answers or None
        self._caught = caught
        state["active"] = self.name

    def _to(self, *stage: Any) -> None:
        self.s["stage"] = [*stage]

    def _take(self) -> Sequence[Mapping[str, Any]] | None:
        """Return the answers to the calls of this stage. None: they have not been made yet."""
        answers, self._answers = self._answers, None
        return answers

    def _call(self, *calls: Mapping[str, Any], **more: Plain) -> Result:
        """Return the result of a round that makes calls. Without calls, the next one begins."""
        return {**self.s.changes(), **more, "calls": [*calls]}

    def _own(self, callee: str, **args: Plain) -> Result:
        """Return a call of a callee besides the tools, hooks and checks of the agent."""
        return {"callee": f"{self.name}.{callee}", "args": args}

    def _hooks(self, when: str) -> list[Mapping[str, Any]]:
        return [hook for hook in self.agent.get("hooks", ()) if hook["when"] == when]

    def _hook(self, hook: Mapping[str, Any], turn: int, **more: Plain) -> Result:
        """Return the call of a hook, with the arguments that it takes."""
        known: dict[str, Plain] = {
            "agent": self.agent.get("called") or self.name,
            "turn": turn,
            "prompt": self._prompt,
            **more,
        }
        return {"callee": hook["step"], "args": {name: known[name] for name in hook["arguments"]}}

    @property
    def _turn(self) -> int:
        """The number of the turn that was taken last."""
        return int(self.s.turns - self.s["begun"])

    @property
    def _over(self) -> bool:
        """Whether no turn is left."""
        return bool(self._turn >= self.agent["max_turns"])

    @property
    def _prompt(self) -> Plain:
        """The newest message of the user."""
        asked, messages = self.s["asked"], self.s.all
        if asked >= len(messages):
            return str(self.s["held"])
        content: Plain = "" if asked < 0 else messages[asked].get("content")
        return content

    def _end_badly(self, why: str, *stage: Any, no_progress: bool = False) -> None:
        self.s["end"] = ended("not_resolved", None, why, no_progress=no_progress)
        self.s["text"] = ""
        self._to(*stage)

    def _spend(self, error: Mapping[str, Any]) -> bool:
        """End the work if a budget is used up, and return whether it is."""
        if error["type"] != "BudgetExceeded":
            return False
        self.s["end"] = ended("budget", None, error["message"])
        self._to("final")
        return True


def shown_cut(cut: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cut as a part of the result of a round."""
    return {key: cut[key] for key in cut if key not in ("mark", "replies")}


def check_lasting(answer: Mapping[str, Any]) -> None:
    """Check that the model may be asked again if a request beside checks has failed."""
    if (answer.get("error") or {}).get("type") in ("Stopped", "Uncertain"):
        raise LastingError(answer["error"])


def output_of(answers: Sequence[Mapping[str, Any]]) -> Any:
    if "error" in answers[0]:
        raise LastingError(answers[0]["error"])
    return answers[0]["output"]
