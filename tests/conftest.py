from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("flowengine", deadline=None)  # a busy machine is no fault of an example
settings.load_profile("flowengine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="fail when a test was skipped: what it needs belongs on the machine",
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("skipped tests count as failures here (--no-skips)", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
