"""Runs the tests of engines a second time, with stores in Temporal, and some of step kinds.

Each of them has a second case, `temporal`. `tests.temporal_exceptions` lists those that do not
hold. A run takes a fiftieth of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowengine.errors import UsageError
from tests.temporal_exceptions import MODULES, NEVER, REFUSED, SOMETIMES, TESTS

if TYPE_CHECKING:
    from tests.temporal_stores import Namespaces, Stores

HERE = Path(__file__).parent
OF_KINDS: Mapping[str, Sequence[str]] = {
    "agents/test_agent_files": (
        "test_an_agent_reads_what_a_step_in_a_sandbox_made_and_a_function_attached",
    ),
    "agents/test_code_mode": ("test_a_program_calls_tools_and_only_its_value_is_told",),
    "agents/test_long_conversations": (
        "test_a_summary_stands_for_what_is_left_out_and_is_marked",
        "test_a_tool_may_summarize",
        "test_the_oldest_messages_are_left_out_once_they_no_longer_fit",
    ),
    "agents/test_skills": (
        "test_names_are_told_and_the_rest_is_read_when_asked_for",
        "test_scripts_run_in_the_environment_of_the_agent",
    ),
    "nodes/test_packages_with_kinds": (
        "test_a_kind_of_a_package_generates_a_flow",
        "test_a_kind_of_a_package_reads_state_by_reference",
        "test_a_kind_of_a_package_uses_tokens_and_money",
        "test_a_server_of_a_package_has_one_session_with_many_tools",
    ),
    "nodes/test_web_search": ("test_a_silent_service_is_left_when_the_time_of_the_step_is_over",),
}
"""Module → tests of step kinds that need more of a worker than others."""
LEFT_OUT = {module for modules in MODULES.values() for module in modules}
REASONS = {
    (module, test): reason
    for reason, modules in TESTS.items()
    for module, tests in modules.items()
    for test in tests
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Add the cases in Temporal."""
    if runs_again(module_of(metafunc.definition), metafunc.function.__name__):
        here = pytest.param(False, id=pytest.HIDDEN_PARAM)
        there = pytest.param(True, id="temporal", marks=pytest.mark.endurance(sample=100))
        metafunc.parametrize("in_temporal", [here, there], indirect=True)


def runs_again(module: str, test: str) -> bool:
    """Return whether a test has a case in Temporal."""
    of_engines = module.startswith("engines/") and not module.startswith("engines/test_temporal")
    if test in OF_KINDS.get(module, ()):
        return True
    return of_engines and module not in LEFT_OUT and REASONS.get((module, test)) not in NEVER


def module_of(test: pytest.Item) -> str:
    """Return the name of a test's module, such as `engines/test_votes`."""
    return test.nodeid.partition("::")[0].removeprefix("tests/").removesuffix(".py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect the listed tests to fail. Those that hold after all are failures too."""
    for item in items:
        reason = reason_for(item)
        if reason is not None:
            refused = UsageError if reason == REFUSED else None
            always = reason not in SOMETIMES
            item.add_marker(pytest.mark.xfail(reason=reason, raises=refused, strict=always))


def reason_for(item: pytest.Item) -> str | None:
    """Return why a test is expected to fail. None: it is not."""
    if not isinstance(item, pytest.Function) or not is_in_temporal(item):
        return None
    module, case = module_of(item), item.name.replace("temporal-", "").replace("-temporal]", "]")
    return REASONS.get((module, item.originalname)) or REASONS.get((module, case))


def is_in_temporal(test: pytest.Function) -> bool:
    """Return whether a test is a case in Temporal."""
    of_a_case = getattr(test, "in_temporal", False)  # see `tests.cases.collecting`
    return of_a_case or (
        hasattr(test, "callspec") and bool(test.callspec.params.get("in_temporal"))
    )


@pytest.fixture(scope="session")
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    """Namespaces for all tests of this process."""
    from tests.engines.temporal_server import server_of_run
    from tests.shared import shared_folder
    from tests.temporal_stores import Namespaces

    with server_of_run(shared_folder(tmp_path_factory) / "stores", workers=False) as (addresses, _):
        yield Namespaces(addresses)


@pytest.fixture(autouse=True)
def in_temporal(request: pytest.FixtureRequest) -> Iterator[Stores | None]:
    """The stores in Temporal of a test. None: it is not a case in Temporal."""
    if not getattr(request, "param", False) and not is_in_temporal(request.node):
        yield None
        return
    from tests.temporal_stores import stores_in_temporal

    objects = request.getfixturevalue("tmp_path_factory").mktemp("objects")
    with stores_in_temporal(request.getfixturevalue("namespaces"), str(objects)) as stores:
        yield stores


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Fail if a case in Temporal has opened no store there."""
    result = yield
    stores: Stores | None = pyfuncitem.funcargs.get("in_temporal")  # type: ignore[assignment]
    assert stores is None or stores.are_used, "the test has opened no store"
    return result
