"""Rules that decide about calls without an approver (docs/language.md: Policies)."""

from pydantic import Field

from flowengine.flow.models.base import ExclusiveKeys, Part
from flowengine.flow.models.types import Condition, Effect, Text


class Policy(Part):
    """A rule about tool calls."""

    NOUN = "a policy"
    RULES = (ExclusiveKeys(("allow", "ask", "deny")),)

    allow: Text | None = Field(
        default=None,
        description="Tools that are called without approval: a glob.",
        examples=["github.get_*"],
    )
    ask: Text | None = Field(
        default=None, description="Tools that require approval: a glob.", examples=["github.*"]
    )
    deny: Text | None = Field(
        default=None, description="Tools that are denied: a glob.", examples=["shell:*"]
    )
    agent: Text | None = Field(
        default=None, description="Only for calls by this agent: a glob.", examples=["triage"]
    )
    effect: Effect | None = Field(
        default=None, description="Only for calls with this effect.", examples=["once"]
    )
    environment: Text | None = Field(
        default=None, description="Only for calls that use this environment.", examples=["prod_*"]
    )
    when: Condition | None = Field(
        default=None,
        description="A condition on the arguments.",
        examples=["${{ args.amount > 100 }}"],
    )

    @property
    def verdict(self) -> tuple[str, str]:
        """The verdict of the rule, and its glob of tools. Both are empty for an invalid rule."""
        for word in ("allow", "ask", "deny"):
            glob = getattr(self, word)
            if glob is not None:
                return word, glob
        return "", ""


class PolicyFile(Part):
    """The rules of a host, for calls in all executions."""

    NOUN = "a policy file"

    policies: list[Policy] = Field(
        description="Rules for the tool calls of all flows.",
        examples=[[{"deny": "shell:*"}]],
    )
