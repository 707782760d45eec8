"""Settings of the host, by which a user and a project configure all flows.

`settings.yaml` is read from the user's configuration directory, then from the nearest `.flowengine`
directory of a project. If both set a value, the stricter one wins: the greater durability, `strict`
if either sets it, and no acting for other users if either forbids it. The user's file defines the
members of groups. The project's file can only restrict them: members are the users named by both,
or by either where a group is excluded. Only the user's file sets who may use a server (`access`),
which services may send to it (`hooks`), which files may be uploaded (`uploads`), who names its
users (`sign_in`), and where they find it (`server_url`).

    durability: process
    strict: true
    act_for_others: false
    groups:
      finance: [ben, "group:board"]
      board: [ana]
    access:
      - {who: ["group:finance"], role: approver, flows: ["expense*"]}
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from flowengine.server_settings import (
    AccessEntry,
    DeployRules,
    HookEntry,
    SignIn,
    UploadRules,
)
from flowengine.util.files import user_folder

NAME = "settings.yaml"


class Settings(NamedTuple):
    """The merged content of the settings files."""

    durability: Literal["power", "process", "none"] | None = None
    groups: dict[str, frozenset[str]] = {}  # noqa: RUF012 - never mutated
    """Group → its users (`user:NAME`), with nested groups resolved."""
    excluded_groups: dict[str, frozenset[str]] = {}  # noqa: RUF012 - never mutated
    """The same for exclusions, including users named only by the project."""
    strict: bool = False
    """Whether a step fails whose script leaves a process running. Otherwise there is a
    warning."""
    act_for_others: bool = True
    """Whether a user may act in another user's name: `--as`, `by=`."""
    access: tuple[AccessEntry, ...] = ()
    """Roles of the users of a server."""
    hooks: tuple[HookEntry, ...] = ()
    """Deliveries that other services may send to a server."""
    uploads: UploadRules | None = None
    """The files that users of a server may upload. None: the defaults."""
    deploys: DeployRules | None = None
    """The flows that may be deployed through a server. None: none."""
    server_url: str | None = None
    """Where users find the server's page, without a slash at the end: for links to it."""
    sign_in: SignIn | None = None
    """How the users of a server sign in besides with tokens."""

    def is_one_of(self, user: str, named: list[str]) -> bool:
        """Return whether a user is named in a list of `user:NAME` and `group:NAME`."""
        return any(
            user in self.groups.get(name[6:], ()) if name.startswith("group:") else user == name
            for name in named
        )

    def excluding(self, user: str, named: Sequence[str]) -> str | None:
        """Return the first of some excluded users and groups that a user is or belongs to."""
        for name in named:
            barred = self.excluded_groups.get(name[6:], ()) if name.startswith("group:") else ()
            if user in barred or self.is_one_of(user, [name]):
                return name
        return None

    def without_members(self, named: Iterable[str]) -> dict[str, str]:
        """Return the groups in a list that have no members, each with the reason as a sentence."""
        values = {}
        for name in named:
            group = name.removeprefix("group:")
            if group == name or self.groups.get(group):
                continue
            why = f"{name} has no members: {settings_file()} "
            if group in self.groups:
                why += "and the project's settings.yaml name no common ones"
            elif os.path.exists(settings_file()):
                why += "does not define it"
            else:
                why += "does not exist"
            if group in self.excluded_groups and group not in self.groups:
                why += " (the project's settings.yaml cannot add members)"
            values[name] = why
        return values

    def groups_of(self, user: str) -> list[str]:
        """Return the groups a user is in, as `group:NAME`, by name."""
        return [f"group:{name}" for name in sorted(self.groups) if user in self.groups[name]]


def settings_file() -> str:
    """Return the path of the user's settings file, which defines the members of groups."""
    return os.path.join(user_folder(), NAME)


def current_user() -> str:
    """Return the user that runs this process: `user:NAME`, or `user:UID` for a nameless uid.

    The system is queried, not the environment, because `LOGNAME` can be set to anything.
    """
    import pwd

    uid = os.getuid()
    try:
        return f"user:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user:{uid}"
