"""Settings of the host: what a user and a project decide for every flow.

`settings.yaml` is looked for in the user's configuration folder, then in the project's
`.flowengine` folder, the nearest one. Where both say something, the stricter wins: the greater
durability, `strict` if one of them says so, and nobody acts for somebody else if one of them
forbids it. Who is in a group is said by the user's file. The project's may only restrict: its
members are those whom both name, and whom either names where a group is excluded.

    durability: process
    strict: true
    act_for_others: false
    groups:
      finance: [ben, "group:board"]
      board: [ana]
"""

from __future__ import annotations

import os
import stat
from typing import Any, Literal, NamedTuple

from flowengine.configuration_folders import user_folder
from flowengine.errors import NotFound, UsageError

DURABILITIES: tuple[Literal["none", "process", "power"], ...] = ("none", "process", "power")
"""From the weakest promise to the strongest: none, a killed process, a power cut."""

_NAME = "settings.yaml"
_KEYS = ("durability", "groups", "strict", "act_for_others")


class Settings(NamedTuple):
    """What the settings files say, merged."""

    durability: Literal["power", "process", "none"] | None = None
    groups: dict[str, frozenset[str]] = {}  # noqa: RUF012 - never mutated
    """Group → its users (`user:NAME`), groups in it resolved."""
    excluded_groups: dict[str, frozenset[str]] = {}  # noqa: RUF012 - never mutated
    """The same where a group may not do something: also those whom only the project names."""
    strict: bool = False
    """Whether a step fails that leaves a process or a listening socket behind; else it is warned
    of."""
    act_for_others: bool = True
    """Whether a user may act in another's name: `--as`, `by=`."""

    def is_one_of(self, user: str, named: list[str]) -> bool:
        """Return whether a user is named in a list of `user:NAME` and `group:NAME`."""
        return any(
            user in self.groups.get(name[6:], ()) if name.startswith("group:") else user == name
            for name in named
        )

    def is_excluded(self, user: str, named: list[str]) -> bool:
        """Return whether a user is named in a list of those who may not do something."""
        return self.is_one_of(user, named) or any(
            name.startswith("group:") and user in self.excluded_groups.get(name[6:], ())
            for name in named
        )

    def groups_of(self, user: str) -> list[str]:
        """Return the groups a user is in, as `group:NAME`, by name."""
        return [f"group:{name}" for name in sorted(self.groups) if user in self.groups[name]]


def load_settings(folder: str) -> Settings:
    """Read the host's settings.

    A file that cannot be read, or that says something that no setting is, is a `UsageError`.

    Args:
        folder: The project's `.flowengine` folder, or one without a settings file.

    Returns:
        The settings of the user's and the project's file.
    """
    return _merge(_read(os.path.join(user_folder(), _NAME)), _read(os.path.join(folder, _NAME)))


def current_user() -> str:
    """Return who runs this process, as `user:NAME`; of a uid without a name, `user:UID`.

    The system is asked, never the environment: `LOGNAME` is whatever somebody sets it to.
    """
    import pwd

    uid = os.getuid()
    try:
        return f"user:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user:{uid}"


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
    return Settings(level, groups, barred, strict, act_for_others)


def _read(path: str) -> Settings:
    data = _data(path)
    if data is None:
        return Settings()
    if not isinstance(data, dict):
        raise UsageError(f"{path} must be a mapping", hint="durability: power")
    unknown = [key for key in data if key not in _KEYS]
    if unknown:
        # A file in which no setting stands may be another one, behind a link: it is not quoted.
        quoted = len(unknown) < len(data)
        what = f"there is no setting '{unknown[0]}'" if quoted else "its keys are not settings"
        raise UsageError(f"{path}: {what}", hint=f"known: {', '.join(_KEYS)}")
    return Settings(
        _durability(path, data.get("durability")),
        _groups(path, data.get("groups")),
        {},
        _switch(path, data, "strict", default=False),
        _switch(path, data, "act_for_others", default=True),
    )


def _data(path: str) -> Any:
    """Return what a settings file says; None if there is none, or nothing in it.

    Raises:
        UsageError: It cannot be read. Nothing of its text is told: it may be a link to any other.
    """
    try:
        kind = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if not stat.S_ISREG(kind):
        raise UsageError(f"{path} is not a file", hint="remove it, or write your settings there")
    from flowengine.flow.source.yaml_source import read

    try:
        source = read(path)
    except NotFound as error:
        raise UsageError(error.message) from None
    if source.problems:
        first = source.problems[0]
        raise UsageError(f"{path}:{first.line}:{first.column}: this cannot be read as YAML")
    return source.data


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
    """Resolve groups in groups; a circle of groups adds nobody."""
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
    for name in names:  # grows while it is walked
        for member in groups.get(name, ()):
            if not member.startswith("group:"):
                users.add(member if member.startswith("user:") else f"user:{member}")
            elif member[6:] not in names:
                names.append(member[6:])
    return users
