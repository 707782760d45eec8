"""A server of the Model Context Protocol as a tool (language reference, §10.6)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from flowengine.flow.models.base import OneOf, Part
from flowengine.flow.models.types import EnvironmentUse, Template, Text, Value

OWN = ("in", "include", "exclude")
"""What the tool says; all else is the `config` of an environment of kind `mcp`."""


class Mcp(Part):
    """One server, or several, with many tools."""

    NOUN = "'mcp'"
    RULES = (OneOf(("command", "url", "servers", "in")),)

    command: Value = Field(
        default=None,
        description="The program to start, or the program with its arguments.",
        examples=[["npx", "some-server"]],
    )
    args: list[Value] = Field(
        default_factory=list, description="Arguments of the program.", examples=[["--verbose"]]
    )
    env: dict[str, Value] = Field(
        default_factory=dict,
        description="Environment variables of the program, in addition to PATH, HOME and LANG.",
        examples=[{"TOKEN": "${{ secrets.TOKEN }}"}],
    )
    cwd: Template | None = Field(
        default=None,
        description="Its working directory. Default: the working folder.",
        examples=["data"],
    )
    url: Template | None = Field(
        default=None,
        description="The address of a server that speaks streamable HTTP.",
        examples=["https://mcp.example.com"],
    )
    headers: dict[str, Value] = Field(
        default_factory=dict,
        description="Headers of every request to it.",
        examples=[{"Authorization": "Bearer ${{ secrets.TOKEN }}"}],
    )
    roots: list[Value] = Field(
        default_factory=list,
        description="Folders that the server is told when it asks for its roots.",
        examples=[["data"]],
    )
    mode: Literal["auto", "legacy"] = Field(
        default="auto",
        description="Revisions of the protocol that are tried; `legacy`: those with a handshake.",
        examples=["legacy"],
    )
    servers: dict[str, Value] = Field(
        default_factory=dict,
        description="Several servers by name; their tools are called `name.tool`.",
        examples=[{"units": {"command": ["units-server"]}}],
    )
    in_: EnvironmentUse = Field(
        default=None,
        alias="in",
        description="A declared environment of kind `mcp`, instead of a server of its own.",
        examples=["units"],
    )
    include: list[Text] | None = Field(
        default=None,
        min_length=1,
        description="The tools that can be called, as names or globs. Default: all.",
        examples=[["get_*"]],
    )
    exclude: list[Text] = Field(
        default_factory=list,
        description="The tools that cannot, as names or globs.",
        examples=[["delete_*"]],
    )

    @property
    def config(self) -> dict[str, Any]:
        """What stands in it of the configuration of an environment."""
        given = self.fields_by_key().items()
        return {
            key: getattr(self, name)
            for key, (name, _) in given
            if key not in OWN and self.has(name)
        }
