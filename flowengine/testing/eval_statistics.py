"""The statistics of an evaluation: intervals of rates and of paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import mean
from typing import NamedTuple

Z = 1.959964
"""The 97.5% quantile of the normal distribution, for intervals of 95%."""


class Estimate(NamedTuple):
    """A mean with its interval of 95%."""

    mean: float
    low: float
    high: float


def rate(scores: Sequence[float]) -> Estimate:
    """Return the mean score with the interval of Wilson.

    The interval is (p + z²/2n ± z√(p(1-p)/n + z²/4n²)) / (1 + z²/n): E. B. Wilson, Probable
    inference, the law of succession, and statistical inference, JASA 22 (1927). No score from 0 to
    1 varies more than a rate with the same mean, so the interval is never too narrow for scores.

    Args:
        scores: One score from 0 to 1 for each case, at least one. Repetitions of a case are not
            independent, so the score of a repeated case is the mean of its trials.

    Returns:
        The estimate.
    """
    n, p = len(scores), mean(scores)
    middle = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return Estimate(p, max(0.0, middle - half), min(1.0, middle + half))


def difference(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return the mean difference of paired scores with the interval of Agresti and Min.

    Two cases are added: half a case each with a difference of 1 and -1, and one without. The
    interval is then Wald's: A. Agresti and Y. Min, Simple improved confidence intervals for
    comparing matched proportions, Statistics in Medicine 24 (2005).

    Args:
        pairs: The scores of each case, before and after, at least one.

    Returns:
        After minus before. The interval is around the mean of the enlarged sample.
    """
    differences = [after - before for before, after in pairs]
    n = len(differences) + 2
    middle = sum(differences) / n
    variance = (sum(d * d for d in differences) + 1) / n - middle**2
    half = Z * sqrt(variance / n)
    return Estimate(mean(differences), max(-1.0, middle - half), min(1.0, middle + half))
