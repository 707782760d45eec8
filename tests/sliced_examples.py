"""Tests that Hypothesis draws examples for, by the dozen: dealt to the slices of `tests.endurance`.

    @sliced(examples=20)
    @given(graphs())
    def test_a_property(drawn: Drawn) -> None: ...

has ten cases with 20 examples each; a normal run takes one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import seed, settings

from tests.endurance import SLICES

Test = Callable[..., None]


def sliced(examples: int) -> Callable[[Test], Test]:
    """Return a decorator for a test without fixtures; each of its cases draws other examples.

    Args:
        examples: How many each case draws.
    """

    def decorated(test: Test) -> Test:
        drawing = settings(max_examples=examples)(test)

        def run(case: int) -> None:
            # Without a seed all cases would draw the same, or others in each run, by the profile.
            (seed(case)(drawing) if settings().derandomize else drawing)()

        run.__doc__ = test.__doc__
        cases = pytest.mark.parametrize("case", range(SLICES))(run)
        return pytest.mark.endurance(cases)

    return decorated
