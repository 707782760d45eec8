"""The models of `config:` and `policy:` for the kind `browser`.

Importing this module loads pydantic, so import it inside `config_model` and `policy_model`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from flowengine.sdk.environments.models import (
    Config,
    Duration,
    EnvironmentPolicy,
    NetworkPlace,
    Size,
)
from flowengine_envs.browser import installation
from flowengine_envs.kinds.configurations import OwnPrograms

Permission = Literal[
    "camera", "clipboard-read", "clipboard-write", "geolocation", "microphone", "notifications"
]


PROFILES = 16
"""Maximum number of environments that share a process. Further ones start another."""


class Viewport(Config):
    """The size of the window, and therefore of screenshots."""

    width: Annotated[int, Field(ge=100, le=4096)] = 1280
    height: Annotated[int, Field(ge=100, le=4096)] = 720


class BrowserConfig(OwnPrograms):
    """`config:` of the kind `browser`."""

    program: Annotated[str, Field(min_length=1)] | None = None
    """Path of the browser. Default: Chromium or Chrome of this machine, or Playwright's own."""
    viewport: Viewport = Field(default_factory=Viewport)
    navigation_timeout: Duration = 30.0
    """Seconds for loading a page."""
    action_timeout: Duration = 5.0
    """Seconds that an action waits for its element, and for the page to respond to it."""
    settle: Duration = 2.0
    """Seconds that an observation waits for the requests that an action started."""
    storage_state: Annotated[str, Field(min_length=1)] | None = None
    """File with the cookies and storage of a login, next to the flow file."""
    permissions: list[Permission] = Field(default_factory=list)
    """Permissions granted to pages without a prompt. All others are denied."""
    isolate: Literal["process", "execution", "context"] = "execution"
    """Which environments share a Chromium process, each with its own profile.

    `process`: none. `execution`: those of one execution or session. `context`: all of a program
    that have the same permissions.
    """
    locale: Annotated[str, Field(min_length=2)] = "en-US"
    timezone: Annotated[str, Field(min_length=1)] | None = None
    tabs: Annotated[int, Field(ge=1, le=100)] = 20
    """Maximum number of open tabs. Further ones are closed as they open."""
    downloads: Size = 100 * 1024 * 1024
    """Maximum bytes of one download. A larger one is cancelled."""
    characters: Annotated[int, Field(gt=0)] = 2_000_000
    """Maximum number of characters of a page's Markdown."""
    tree: Annotated[int, Field(gt=0)] = 200_000
    """Maximum number of characters of its accessibility tree in an observation."""

    @property
    def proxies(self) -> int:
        """Number of proxies that the sandbox needs, one per profile."""
        return 1 if self.isolate == "process" else PROFILES

    @property
    def libraries(self) -> tuple[str, ...]:
        """Directories that the sandbox needs in addition to the interpreter's."""
        return installation.folders(self.program)


class BrowserPolicy(EnvironmentPolicy):
    """`policy:` of the kind `browser`."""

    network: Literal["none", "any", "public"] | list[NetworkPlace] | None = "public"
    """Places that pages may reach. Default: every host with a public address."""
    evaluate: bool = False
    """Whether the action `evaluate` may run code on pages."""
    ask: list[Literal["password", "upload", "new_host"]] = Field(default_factory=list)
    """Actions that require approval each time.

    `password`: submitting a form with a password. `upload`: uploading files. `new_host`: reaching a
    host that `network` does not name and that has not been approved.
    """

    @model_validator(mode="after")
    def _can_ask(self) -> Self:
        if "new_host" in self.ask and self.network == "any":
            raise ValueError(
                "ask: new_host needs 'network: public' or a list: with 'any', pages have ways out "
                "that cannot be blocked"
            )
        return self
