"""Hypothesis tests with many examples, of which `make test` runs a sample (`tests.endurance`).

    @sliced(examples=20)
    @given(graphs())
    def test_a_property(drawn: Drawn) -> None: ...

has twenty cases with 20 examples each. A normal run takes one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import seed, settings

from tests.endurance import SAMPLE

Test = Callable[..., None]


def sliced(examples: int) -> Callable[[Test], Test]:
    """Return a decorator for a test without fixtures. Each of its cases draws different examples.

    Args:
        examples: Number of examples per case.
    """

    def decorated(test: Test) -> Test:
        drawing = settings(max_examples=examples)(test)

        def run(case: int) -> None:
            # Without a seed, depending on the profile, all cases would draw the same or random
            # examples.
            (seed(case)(drawing) if settings().derandomize else drawing)()

        run.__doc__ = test.__doc__
        cases = pytest.mark.parametrize("case", range(SAMPLE))(run)
        return pytest.mark.endurance(cases)

    return decorated
