"""`browser`: Chromium in a sandbox, whose pages steps and agents observe."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Axis, Capabilities, Provider, Request, Screen, Spec
from flowengine.sdk.python.extras import install_command
from flowengine_envs.browser import installation
from flowengine_envs.browser.configuration import BrowserConfig, BrowserPolicy
from flowengine_envs.browser.resource import Browser
from flowengine_envs.workspaces.own_folder import make_own


class BrowserProvider(Provider["Browser"]):
    """Opens browsers."""

    kind = "browser"
    sandbox = "namespace"
    only_in: ClassVar[tuple[str, ...]] = ("namespace", "host")
    live = True

    @classmethod
    def resource_types(cls) -> tuple[type, ...]:
        """Return the class of browsers."""
        return (Browser,)

    def config_model(self) -> type[BaseModel]:
        return BrowserConfig

    def policy_model(self) -> type[BaseModel]:
        return BrowserPolicy

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the sandbox's guarantees for Chromium, and those enforced per action."""
        holds: dict[Axis, str] = {
            "time": "an action is given up, and a page that does not answer is closed"
        }
        # Its profile consists of many files. A browser's downloads have their own limit.
        return sandbox.without("disk").also(holds)

    async def probe(self, spec: Spec) -> None:
        """Look for the browser and the packages.

        Raises:
            EnvironmentUnavailable: One of them is not installed. The message contains the command.
        """
        if missing := installation.missing():
            raise EnvironmentUnavailable(
                f"{spec}: {', '.join(missing)} not installed: {install_command('browser')}"
            )
        named = spec.config.program
        if installation.browser(named) is None:
            what = "Chromium is not installed" if named is None else f"there is no browser {named}"
            raise EnvironmentUnavailable(f"{spec}: {what}. {installation.INSTALL}")

    async def ensure(self, request: Request) -> Browser:
        """Start a browser with a blank page, or with its page from before a wait.

        Returns:
            The browser.

        Raises:
            EnvironmentStartFailed: It did not start.
        """
        make_own(request)
        browser = Browser(request)
        await browser.open()
        return browser

    async def screen(self, resource: Browser) -> Screen:
        """Return a picture of the window, as its active tab is at the moment."""
        return await resource.screen()

    def health_check(self, resource: Browser) -> bool:
        """Return whether its processes run."""
        return resource.healthy

    async def suspend(self, resource: Browser) -> None:
        """Save cookies, storage and address, then end it."""
        await resource.save()
        await resource.close()

    async def release(self, resource: Browser) -> None:
        """End it and all processes that it started. The workspace stays."""
        await resource.close()
