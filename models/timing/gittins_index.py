"""Expected service of jobs with unknown duration: to the end, or per completion (Gittins index)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHORTEST: Final = 60
"""Shortest assumed duration and smallest quantum of service, in seconds."""
_LONGEST: Final = 30 * 24 * 3600
"""Longest assumed duration, in seconds."""
_QUANTUM_DIVISOR: Final = 4
"""A quantum of service is at least the attained service divided by this."""
_MAX_SAMPLES: Final = 64
"""Sample size above which durations are replaced by this many quantiles."""
_PARTS: Final = (-0.75, -0.25, 0.25, 0.75)
"""Exponents of 4/3 by which `smoothed_durations` multiplies each duration."""


def seconds_per_completion(durations: Sequence[int], attained: int) -> int | None:
    """
    Minimum service per completion, in seconds: the inverse of the Gittins index.

        min_t  E[min(S − a, t) | S > a] / P(S ≤ a + t | S > a)

    for a job with `attained` seconds of service a, with total service S drawn from the sorted `durations`
    (Gittins, Journal of the Royal Statistical Society B 41, 1979; Aalto et al., Queueing Systems 63, 2009).
    The quantum of service is at least a minute, and at least a quarter of the attained service. Rounded up.
    None if no duration is longer than the attained service.
    """
    left = [each - attained for each in durations if each > attained]
    least = max(_SHORTEST, attained // _QUANTUM_DIVISOR)
    best, served, before = None, 0, 0
    for done, time in enumerate(left, start=1):
        # Jobs that get this far, times the service since the last completion; divided by completions below.
        served += (len(left) - done + 1) * (time - before)
        before = time
        longer = max(0, least - time) * (len(left) - done)
        if not longer or done == len(left) or left[done] > least:
            each = -(-(served + longer) // done)
            best = each if best is None else min(best, each)
    return best


def quantiles(durations: Sequence[int]) -> Sequence[int]:
    """Sorted durations, or their quantiles if there are many."""
    count = len(durations)
    return (
        durations
        if count <= _MAX_SAMPLES
        else [durations[(2 * at + 1) * count // (2 * _MAX_SAMPLES)] for at in range(_MAX_SAMPLES)]
    )


def smoothed_durations(durations: Iterable[int]) -> list[int]:
    """
    Spread each duration over several values between three quarters and four thirds of it; sorted.

    With the observed values alone, the index of a job would jump at each of them.
    """
    return sorted(max(1, round(each * (4 / 3) ** part)) for each in durations for part in _PARTS)


def index_of_unknown(attained: int) -> int:
    """
    `seconds_per_completion` of a job of which nothing is known.

    S is log-uniform between m = 1 minute and M = 30 days: a duration of one to two minutes is as likely as
    one of two to four weeks. The hazard 1 / (a · ln(M / a)) falls for most of the time. There the index is
    the hazard, so such jobs are served by least attained service. In the first minutes it is that of the best
    stopping time, about e · m; beyond M / e it is constant.
    """
    service = min(max(attained, _SHORTEST * math.e), _LONGEST / math.e)
    return math.ceil(service * math.log(_LONGEST / service))


def mean_residual(durations: Sequence[int], attained: int) -> int | None:
    """
    Mean remaining service of jobs with `attained` seconds of service: E[S − a | S > a], rounded up.

    None if no duration is longer than that.
    """
    left = [each - attained for each in durations if each > attained]
    return -(-sum(left) // len(left)) if left else None


def mean_residual_of_unknown(attained: int) -> int:
    """
    `mean_residual` of a job of which nothing is known: S is log-uniform from a minute to 30 days.

        E[S − a | S > a] = (M − a) / ln(M / a) − a

    In the first minute it is the value at one minute, and beyond M / e it is constant.
    """
    service = min(max(attained, _SHORTEST), _LONGEST / math.e)
    return math.ceil((_LONGEST - service) / math.log(_LONGEST / service) - service)
