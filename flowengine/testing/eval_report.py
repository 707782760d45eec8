"""The report on an evaluation: scores with intervals, comparisons, and what falls short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, median

from flowengine.testing.evaluation import Trial

PASSED = "passed"
"""The score that every evaluation has: 1 for a trial that has passed."""


_COLUMNS = frozenset(
    {"case", "variant", "trial", "status", "problems", "execution", "judge_execution"}
    | {"cost", "tokens", "time"}
)
"""The columns of the tables, besides those of scores."""
Z = 1.959964
"""The 97.5% quantile of the normal distribution, for intervals of 95%."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval of 95%."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.0%} ({self.low * 100:.0f} to {self.high:.0%})"


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


@dataclass(frozen=True)
class VariantReport:
    """The results of one variant."""

    name: str
    trials: int
    """Those that were run."""
    repeats: int
    """The most trials of one case."""
    cases: int
    errors: int
    scores: dict[str, Estimate]
    """`passed` and the verdicts of the judge, by name."""
    always: float
    """The share of cases in which all trials have passed: pass^k of tau-bench (Yao et al., 2024)
    with k trials of each case."""
    ever: float
    """The share of cases in which any trial has passed: pass@k (Chen et al., 2021)."""
    tokens: int
    cost_usd: float
    seconds: float
    """Median of the trials."""


@dataclass(frozen=True)
class Comparison:
    """One score of a variant against that of the baseline, over the same cases."""

    variant: str
    baseline: str
    score: str
    difference: Estimate
    better: int
    worse: int
    same: int

    def row(self) -> dict[str, str | int]:
        """Return the comparison in words and numbers, in points of 100."""
        low, high = self.difference.low * 100, self.difference.high * 100
        points = f"{self.difference.mean * 100:+.0f} points ({low:+.0f} to {high:+.0f})"
        counts = {"better": self.better, "worse": self.worse, "the same": self.same}
        names = {"variant": self.variant, "against": self.baseline, "score": self.score}
        return {**names, "difference": points, **counts}


@dataclass(frozen=True)
class Shortfall:
    """A required score that a variant does not reach."""

    variant: str
    score: str
    required: float
    reached: float | None
    """None: it has no such score."""

    def row(self) -> dict[str, str]:
        """Return the shortfall in words."""
        reached = "this score does not exist" if self.reached is None else f"{self.reached:.0%}"
        least = f"{self.required:.0%}"
        return {"variant": self.variant, "score": self.score, "least": least, "reached": reached}


@dataclass(frozen=True)
class Report:
    """The results of an evaluation."""

    variants: list[VariantReport]
    comparisons: list[Comparison]
    """Of each variant with the first one, then of each with itself in an earlier evaluation."""
    too_low: list[Shortfall]


def report_on(
    trials: Iterable[Trial],
    required: Mapping[str, float],
    earlier: Iterable[Trial] = (),
    earlier_id: str = "",
) -> Report:
    """Return the results of an evaluation.

    Args:
        trials: Its trials. Those that wait or were not run are left out.
        required: The mean score that each variant must reach, by name.
        earlier: Trials of an earlier evaluation.
        earlier_id: Id of the earlier evaluation.

    Returns:
        The report.
    """
    own, before = _by_variant(trials), _by_variant(earlier)
    first, *others = own.items() or [("", [])]
    compared = [each for other in others for each in _compared(first, other)]
    for name in own:
        if name in before:
            baseline = f"{name} of {earlier_id}", before[name]
            compared += _compared(baseline, (name, own[name]))
    reports = [_variant(name, ran) for name, ran in own.items()]
    missed = []
    for report in reports:
        for name, least in required.items():
            score = report.scores.get(name)
            if score is None or score.mean < least:
                reached = None if score is None else score.mean
                missed.append(Shortfall(report.name, name, least, reached))
    return Report(reports, compared, missed)


def column(score: str) -> str:
    """Return the column of a score, whose name may be that of another column."""
    return f"{score} (score)" if score in _COLUMNS else score


def table_of(report: Report) -> list[dict[str, str]]:
    """Return a row for each variant: its scores, cost, tokens and median time, as texts."""
    names = dict.fromkeys(name for variant in report.variants for name in variant.scores)
    repeats = max((variant.repeats for variant in report.variants), default=1)
    return [
        {
            "variant": variant.name,
            **{column(name): str(variant.scores.get(name, "-")) for name in names},
            **({f"all of {repeats}": f"{variant.always:.0%}"} if repeats > 1 else {}),
            **({f"any of {repeats}": f"{variant.ever:.0%}"} if repeats > 1 else {}),
            "cost": f"${variant.cost_usd:.4f}",
            "tokens": str(variant.tokens),
            "time": f"{variant.seconds:.1f}s",
        }
        for variant in report.variants
    ]


def _variant(name: str, trials: list[Trial]) -> VariantReport:
    cases = by_cases(trials, PASSED)
    return VariantReport(
        name,
        len(trials),
        max(trial.number for trial in trials),
        len(cases),
        sum(trial.status == "error" for trial in trials),
        {name: rate(list(by_cases(trials, name).values())) for name in _names(trials)},
        mean(float(score == 1) for score in cases.values()),
        mean(float(score > 0) for score in cases.values()),
        sum(trial.tokens for trial in trials),
        sum(trial.cost_usd for trial in trials),
        median(trial.seconds for trial in trials),
    )


def _names(trials: list[Trial]) -> Iterable[str]:
    """Return the names of the scores of trials, without repetition."""
    return dict.fromkeys((PASSED, *(name for trial in trials for name in trial.scores)))


def by_cases(trials: Iterable[Trial], name: str) -> dict[str, float]:
    """Return the mean score of each case that has this score."""
    scores: dict[str, list[float]] = {}
    for trial in trials:
        value = float(trial.passed) if name == PASSED else trial.scores.get(name)
        if value is not None:
            scores.setdefault(trial.case, []).append(value)
    return {case: mean(values) for case, values in scores.items()}


def _by_variant(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.status not in {"not run", "waiting"}:
            found.setdefault(trial.variant, []).append(trial)
    return found


def _compared(
    baseline: tuple[str, list[Trial]], variant: tuple[str, list[Trial]]
) -> Iterable[Comparison]:
    for name in _names(variant[1]):
        before, after = by_cases(baseline[1], name), by_cases(variant[1], name)
        pairs = [(before[case], after[case]) for case in after if case in before]
        if pairs:
            better = sum(new > old for old, new in pairs)
            worse = sum(new < old for old, new in pairs)
            same = len(pairs) - better - worse
            estimate = difference(pairs)
            yield Comparison(variant[0], baseline[0], name, estimate, better, worse, same)
