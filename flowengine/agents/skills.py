"""Skills: directories with instructions for a task (open Agent Skills format), and their tools."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain, ToolError
from flowengine.sdk.steps.generated_flows import Declared, Loc
from flowengine.sdk.texts.flow_texts import literal_text, plain_text
from flowengine.sdk.texts.received import received_text
from flowengine.sdk.texts.visible_text import one_line
from flowengine.sdk.tools.schemas import record

# Skills: directories with instructions for a particular task, in the open Agent Skills format.
#
# A skill is a directory with a file `SKILL.md`, which consists of front matter with `name` and
# `description`, and a text. Its content is part of the compiled flow. A model sees names and
# descriptions, and reads the rest through a tool when needed (`skills.py`). A skill
# contributes only text and files. It grants no tools, environments or permissions.

SKILL = "SKILL.md"
LARGEST = 4 * 1024 * 1024
"""Maximum bytes of all files of a skill."""
LARGEST_FRONT = 64 * 1024
"""Maximum characters of the front matter."""

_FIELD = re.compile(r"""^([\w-]+):[ \t]+([^\s"'|>].*(?:\n[ \t]+\S.*)*)""", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1024


class Malformed(Exception):
    """A `SKILL.md` with a wrong format.

    Args:
        line: Line of the file.
        message: The error.
        hint: How to fix it.
    """

    def __init__(self, line: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Skill:
    """A skill."""

    name: str
    description: str
    """A description in one line."""
    files: Mapping[str, bytes]
    """Content by relative path. For `SKILL.md`, only the text below the front matter."""


def skills_of(agent: Declared) -> list[Skill]:
    """Return the skills of an agent, in the order of their paths, and report invalid ones."""
    skills: dict[str, Skill] = {}
    for place, pattern in enumerate(agent.content.get("skills", [])):
        loc: Loc = (*agent.loc, "skills", place)
        for folder, files in agent.home.folders(pattern, SKILL, LARGEST, loc).items():
            try:
                skill = skill_in(files, posixpath.basename(folder))
            except Malformed as error:
                path = posixpath.join(folder, SKILL)
                agent.home.refuse("E103", f"{path}:{error.line}: {error.message}", loc, error.hint)
                continue
            if skill.name in skills and skill != skills[skill.name]:
                message = f"two skills are called {skill.name!r}"
                agent.home.refuse("E105", message, loc, "rename one, and its directory")
            skills[skill.name] = skill
    return list(skills.values())


def skill_in(files: Mapping[str, bytes], folder: str) -> Skill:
    """Read a skill.

    Args:
        files: Content by relative path.
        folder: Name of its directory, which must be the name of the skill.

    Raises:
        Malformed: Its `SKILL.md` is not in the format.
    """
    data = files[SKILL]
    try:
        text = received_text(data).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed(line, "it is not text in UTF-8", "save it as UTF-8") from None
    begin = "begin the file with '---', a line 'name: …', a line 'description: …', and '---'"
    if not text.startswith("---\n"):
        raise Malformed(1, "the front matter is missing", begin)
    end = re.search(r"^---[ \t]*$", text[4 : 4 + LARGEST_FRONT], re.MULTILINE)
    if end is None:
        raise Malformed(1, "the front matter has no end", "end it by a line '---'")
    fields, lines = _fields(text[4 : 4 + end.start()])
    name = _checked_name(fields, lines, folder)
    text = text[4 + end.end() :].lstrip("\n")
    return Skill(name, _checked_description(fields, lines), {**files, SKILL: text.encode()})


def _fields(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the fields of a front matter, and their lines in the file."""
    import yaml

    try:
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            text = _FIELD.sub(_quoted, text)
            data = yaml.safe_load(text)
        node = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = 2 if mark is None else mark.line + 2
        problem = getattr(error, "problem", None) or "it cannot be read"
        hint = "quote a text that has ': ' or begins with a special character"
        raise Malformed(line, f"the front matter is not YAML: {problem}", hint) from None
    if not isinstance(data, dict):
        raise Malformed(2, "the front matter is not a mapping", "write 'name: …', 'description: …'")
    assert isinstance(node, yaml.MappingNode)
    return data, {str(key.value): key.start_mark.line + 2 for key, _ in node.value}


def _quoted(field: re.Match[str]) -> str:
    """Return a field with its value as text in one line, if it is not YAML without quotes."""
    import yaml

    try:
        yaml.safe_load(field[0])
    except yaml.YAMLError:
        value = json.dumps(" ".join(field[2].split()), ensure_ascii=False)
        return f"{field[1]}: {value}" + "\n" * field[2].count("\n")
    return field[0]


def _checked_name(fields: Mapping[str, Any], lines: Mapping[str, int], folder: str) -> str:
    name = fields.get("name")
    line = lines.get("name", 1)
    if not isinstance(name, str):
        raise Malformed(line, "'name' is missing or not text", f"write 'name: {folder}'")
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        hint = f"take lower-case letters, digits and single hyphens, {_LONGEST_NAME} at most"
        raise Malformed(line, f"{name[:_LONGEST_NAME]!r} cannot be the name of a skill", hint)
    if name != folder:
        message = f"the name is {name!r}, and the directory is called {folder!r}"
        raise Malformed(line, message, "give both the same name")
    return name


def _checked_description(fields: Mapping[str, Any], lines: Mapping[str, int]) -> str:
    description = fields.get("description")
    line = lines.get("description", 1)
    hint = "describe in a sentence the purpose of the skill and when to use it"
    if not isinstance(description, str) or not description.strip():
        raise Malformed(line, "'description' is missing or not text", hint)
    if len(description) > _LONGEST_DESCRIPTION:
        message = f"'description' has more than {_LONGEST_DESCRIPTION} characters"
        raise Malformed(line, message, "move the details below the front matter")

    return one_line(description, _LONGEST_DESCRIPTION)


# The description of skills for an agent, and the tools with which it uses them.
#
# One tool reads their texts. Another, for agents that can run programs, copies their files to the
# environment of these programs.

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
            record({"name": names, "path": path}, ["name"]),
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
                record({"name": names}),
                {
                    "agent_skill": {"does": "copy", "skills": constants},
                    "environments": {ENVIRONMENT: place},
                },
                adapter=adapter,
            )
        )
    return tools


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
