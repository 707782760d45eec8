"""Rules that decide about calls before people are asked (docs/language.md: Policies)."""

from pydantic import Field

from flowengine.flow.models.base import OneOf, Part
from flowengine.flow.models.types import Condition, Effect, Text


class Policy(Part):
    """A rule about tool calls."""

    NOUN = "a policy"
    RULES = (OneOf(("allow", "ask", "deny")),)

    allow: Text | None = Field(
        default=None,
        description="Tools that may be called without an approval: a glob.",
        examples=["github.get_*"],
    )
    ask: Text | None = Field(
        default=None,
        description="Tools whose calls need an approval: a glob.",
        examples=["github.*"],
    )
    deny: Text | None = Field(
        default=None, description="Tools that must not be called: a glob.", examples=["shell:*"]
    )
    agent: Text | None = Field(
        default=None, description="Only for calls by this agent: a glob.", examples=["triage"]
    )
    effect: Effect | None = Field(
        default=None, description="Only for calls with this effect.", examples=["once"]
    )
    environment: Text | None = Field(
        default=None, description="Only for calls with this environment.", examples=["prod_*"]
    )
    when: Condition | None = Field(
        default=None,
        description="Only if this condition on the arguments holds.",
        examples=["${{ args.amount > 100 }}"],
    )

    @property
    def verdict(self) -> tuple[str, str]:
        """What the rule says, and the glob of the tools that it is about; empty of a wrong one."""
        for word in ("allow", "ask", "deny"):
            glob = getattr(self, word)
            if glob is not None:
                return word, glob
        return "", ""


class PolicyFile(Part):
    """The rules of a host, for calls in all executions."""

    NOUN = "a policy file"

    policies: list[Policy] = Field(
        description="Rules for calls of tools, whatever flow makes them.",
        examples=[[{"deny": "shell:*"}]],
    )
