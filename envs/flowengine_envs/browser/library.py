"""Playwright's names."""

from typing import TYPE_CHECKING

from flowengine_envs.libraries import names_of

if TYPE_CHECKING:
    from playwright.async_api import *
else:
    __getattr__ = names_of("playwright.async_api")
