"""Reading of the settings files of a user and of a project. See `settings`."""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Literal

from flowengine import flow as language
from flowengine.errors import NotFound, UsageError
from flowengine.sdk.python.argument_checks import known_words
from flowengine.sdk.texts.near_words import nearest
from flowengine.server_settings import read
from flowengine.settings import NAME, Settings, settings_file

DURABILITIES: tuple[Literal["none", "process", "power"], ...] = ("none", "process", "power")
"""From the weakest guarantee to the strongest: none, a killed process, a power cut."""

_KEYS = (
    "durability",
    "groups",
    "strict",
    "act_for_others",
    "access",
    "hooks",
    "uploads",
    "deploys",
    "server_url",
    "sign_in",
)
_OF_SERVER = {
    "access": "give access",
    "hooks": "declare hooks",
    "uploads": "allow uploads",
    "deploys": "allow deployments",
    "sign_in": "set sign_in",
}
"""The settings that `server_settings` reads, and actions forbidden to a project."""
_URL = r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?/?"


def load_settings(folder: str) -> Settings:
    """Read the host's settings.

    A file that cannot be read, or contains an unknown setting, raises `UsageError`.

    Args:
        folder: The project's `.flowengine` directory, or one without a settings file.

    Returns:
        The settings of the user's and the project's file.
    """
    return _merge(_read(settings_file()), _read(os.path.join(folder, NAME)))


def _merge(user: Settings, project: Settings) -> Settings:
    levels = [level for level in (user.durability, project.durability) if level is not None]
    groups = {
        name: members & project.groups.get(name, members) for name, members in user.groups.items()
    }
    barred = {
        name: user.groups.get(name, frozenset()) | project.groups.get(name, frozenset())
        for name in user.groups.keys() | project.groups.keys()
    }
    level = max(levels, key=DURABILITIES.index, default=None)
    strict = user.strict or project.strict
    act_for_others = user.act_for_others and project.act_for_others
    of_user = (user.access, user.hooks, user.uploads, user.deploys, user.server_url, user.sign_in)
    return Settings(level, groups, barred, strict, act_for_others, *of_user)


def _read(path: str) -> Settings:
    data = _data(path)
    if data is None:
        return Settings()
    if not isinstance(data, dict):
        raise UsageError(f"{path} must be a mapping", hint="durability: power")
    unknown = [key for key in data if key not in _KEYS]
    if unknown:
        # A file without any setting may be a different file, behind a link, so it is not quoted,
        # unless its key resembles a setting.
        quoted = len(unknown) < len(data) or nearest(str(unknown[0]), _KEYS) is not None
        what = f"unknown setting '{unknown[0]}'" if quoted else "its keys are not settings"
        raise UsageError(f"{path}: {what}", hint=known_words(str(unknown[0]), [*_KEYS]))
    return Settings(
        _durability(path, data.get("durability")),
        _groups(path, data.get("groups")),
        {},
        _switch(path, data, "strict", default=False),
        _switch(path, data, "act_for_others", default=True),
        server_url=_server_url(path, data.get("server_url")),
        **_of_server(path, data),
    )


def _data(path: str) -> Any:
    """Return the content of a settings file, or None if it does not exist or is empty.

    Raises:
        UsageError: It cannot be read. Its text is not quoted, because it may be a link to any file.
    """
    try:
        kind = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if not stat.S_ISREG(kind):
        raise UsageError(f"{path} is not a file", hint="remove it, or write your settings there")
    try:
        source = language.yaml_source.read(path)
    except NotFound as error:
        raise UsageError(error.message) from None
    if source.problems:
        first = source.problems[0]
        what = first.message.partition(":")[0]
        if not what.startswith("the file "):  # other messages may quote it
            what = "this cannot be read as YAML"
        raise UsageError(f"{path}:{first.line}:{first.column}: {what}")
    return source.data


def _of_server(path: str, data: dict[str, Any]) -> dict[str, Any]:
    """Read the settings of a server that are given."""
    given = [key for key, act in _OF_SERVER.items() if _is_set(path, data.get(key), act)]
    if not given:
        return {}

    return {key: read(key, path, data[key]) for key in given}


def _server_url(path: str, value: Any) -> str | None:
    """Read the address of the page. A project must not lead approvers to another one."""
    if not _is_set(path, value, "set server_url"):
        return None
    if not isinstance(value, str) or re.fullmatch(_URL, value) is None:
        raise UsageError(
            f"{path}: server_url is not an address of a server",
            hint="server_url: https://flows.example.com",
        )
    return value.rstrip("/")


def _is_set(path: str, value: Any, action: str) -> bool:
    """Return whether a value is given that only the user's own file may give.

    Args:
        action: The forbidden action, for the message.

    Raises:
        UsageError: It is in a project's file.
    """
    if value is not None and path != settings_file():
        raise UsageError(
            f"{path}: a project cannot {action}", hint=f"write it into {settings_file()}"
        )
    return value is not None


def _switch(path: str, data: dict[Any, Any], name: str, *, default: bool) -> bool:
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise UsageError(f"{path}: {name} is {value!r}", hint="write true or false")
    return value


def _durability(path: str, value: Any) -> Literal["power", "process", "none"] | None:
    if value is None or value in DURABILITIES:
        return value  # type: ignore[no-any-return]
    raise UsageError(f"{path}: durability is {value!r}", hint="write power, process or none")


def _groups(path: str, value: Any) -> dict[str, frozenset[str]]:
    """Resolve groups in groups. A cycle of groups adds no members."""
    value = {} if value is None else value
    if not isinstance(value, dict) or not all(
        isinstance(members, list) and all(isinstance(member, str) for member in members)
        for members in value.values()
    ):
        raise UsageError(
            f"{path}: groups must map each group to a list of users",
            hint='groups: {finance: [ben, "group:board"]}',
        )
    return {str(name): frozenset(_members(value, [str(name)])) for name in value}


def _members(groups: dict[Any, list[str]], names: list[str]) -> set[str]:
    users: set[str] = set()
    for name in names:  # the list grows during the loop
        for member in groups.get(name, ()):
            if not member.startswith("group:"):
                users.add(member if member.startswith("user:") else f"user:{member}")
            elif member[6:] not in names:
                names.append(member[6:])
    return users
