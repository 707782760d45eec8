"""The description of skills for an agent, and the tools with which it uses them.

One tool reads their texts. Another, for agents that can run programs, copies their files to the
environment of these programs.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.agents.skills import SKILL, Skill
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain, ToolError
from flowengine.sdk.generated_flows import Declared
from flowengine.sdk.literal_text import literal_text, plain_text

SHOWN = 100_000
"""Maximum characters of a file shown to a model at once."""
READ, COPY = "read_skill", "copy_skill"
TOOLS = (READ, COPY)
FOLDER = "skills"
"""Directory to which skill files are copied."""
ENVIRONMENT = "shell"
"""Name under which `copy_skill` looks up its environment."""
RUN_PROGRAMS = ("shell", "bash", "docker")
"""Kinds of environments that run programs."""


def offered(skills: Sequence[Skill]) -> list[Plain]:
    """Return the names and descriptions of skills, as constants of a turn."""
    return [{"name": skill.name, "description": skill.description} for skill in skills]


def listing(skills: Sequence[Mapping[str, str]]) -> str:
    """Return the list of skills for the model's instructions."""
    if not skills:
        return ""
    lines = [f"- {skill['name']}: {skill['description']}" for skill in skills]
    head = f"There are skills: instructions for particular tasks. Call {READ} before such a task."
    return "\n".join([head, *lines])


def skill_tools(
    skills: Sequence[Skill], place: Plain | None, adapter: Mapping[str, Plain]
) -> list[ToolStep]:
    """Return the tools that read skills and, if the agent runs programs, copy their files.

    Args:
        skills: Skills of the agent.
        place: The environment in which it runs programs, as in a step. None: it runs none.
        adapter: Arguments of the adapter of their results.
    """
    if not skills:
        return []
    adapter = {**adapter, "limit": SHOWN}
    constants: Plain = {skill.name: _constants(skill) for skill in skills}
    names: Plain = {"enum": [skill.name for skill in skills]}
    path = {"type": "string", "default": SKILL, "description": "A file that the skill refers to."}
    tools = [
        ToolStep(
            READ,
            "Reads a skill, or one of its files.",
            _arguments({"name": names, "path": path}),
            {"agent_skill": {"does": "read", "skills": constants}},
            parallel=True,
            adapter=adapter,
        )
    ]
    brings_files = any(len(skill.files) > 1 for skill in skills)
    if place is not None and brings_files:
        tools.append(
            ToolStep(
                COPY,
                "Copies the files of a skill to where commands run. Returns their directory there.",
                _arguments({"name": names}),
                {
                    "agent_skill": {"does": "copy", "skills": constants},
                    "environments": {ENVIRONMENT: place},
                },
                adapter=adapter,
            )
        )
    return tools


def _arguments(properties: dict[str, Plain]) -> dict[str, Plain]:
    return {
        "type": "object",
        "properties": properties,
        "required": ["name"],
        "additionalProperties": False,
    }


def place_of(agent: Declared) -> Plain | None:
    """Return the first environment of the agent that runs programs."""
    for use in agent.content.get("environments", {}).values():
        [name] = use
        environment = agent.home.find("environments", name, (*agent.loc, "environments"))
        if environment is not None and environment.content.get("kind") in RUN_PROGRAMS:
            return {**use}
    return None


def _constants(skill: Skill) -> dict[str, Plain]:
    """Return the files of a skill as constants of a step: text, or `{base64}`."""
    files: dict[str, Plain] = {}
    for path, content in skill.files.items():
        try:
            files[path] = literal_text(content.decode())
        except UnicodeDecodeError:
            files[path] = {"base64": base64.b64encode(content).decode()}
    return files


# Implementation of the tools


def read_skill(files: Mapping[str, Plain], name: str, path: str) -> str:
    """Return the text of a skill's file. For `SKILL.md`, append the names of the other files.

    Args:
        files: Files of the skill, as constants.
        name: Name of the skill.
        path: Path of the file, relative to the skill.

    Raises:
        ToolError: The file does not exist, or is not text.
    """
    path = posixpath.normpath(path)
    file = files.get(path)
    if file is None:
        there = ", ".join(files)
        raise ToolError(f"the skill {name!r} has no file {path!r}; it has {there}", retryable=False)
    content = content_of(file)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        size = len(content)
        raise ToolError(f"{path!r} is not text: it has {size} bytes", retryable=False) from None
    others = [file for file in files if file != SKILL]
    if path != SKILL or not others:
        return text
    return f"{text.rstrip()}\n\nFiles of this skill: {', '.join(others)}\n"


async def copy_skill(files: Mapping[str, Plain], name: str, resource: Any) -> dict[str, Plain]:
    """Copy the files of a skill to an environment, and return their directory there.

    Args:
        files: Files of the skill, as constants.
        name: Name of the skill.
        resource: The environment in which commands run.
    """
    folder = posixpath.join(FOLDER, name)
    for path, content in files.items():
        data = content_of(content)
        mode = 0o755 if data.startswith(b"#!") else 0o644
        await resource.async_put(posixpath.join(folder, path), data, mode)
    return {"folder": folder, "files": list(files)}


def content_of(constant: Plain) -> bytes:
    """Return the content of a file from its constant."""
    if isinstance(constant, Mapping):
        return base64.b64decode(str(constant["base64"]))
    return str(plain_text(constant)).encode()
