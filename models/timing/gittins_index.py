"""Service that unknown durations are likely to need: to the end, or at best for each completion (Gittins)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHORTEST: Final = 60
_LONGEST: Final = 30 * 24 * 3600
_QUANTUM: Final = 4
_MANY: Final = 64
_PARTS: Final = (-0.75, -0.25, 0.25, 0.75)


def seconds_per_completion(durations: Sequence[int], attained: int) -> int | None:
    """
    Service that one completion takes at best, in seconds: one over the Gittins index.

        min_t  E[min(S − a, t) | S > a] / P(S ≤ a + t | S > a)

    for a job that has had `attained` seconds of service a, whose whole service S is drawn from the sorted
    `durations` (Gittins, Journal of the Royal Statistical Society B 41, 1979; Aalto et al., Queueing Systems
    63, 2009). A job that is served is so for a minute, or a quarter of what it has had, at least. Rounded up.
    None if none of the durations is longer than what the job has had.
    """
    left = [each - attained for each in durations if each > attained]
    least = max(_SHORTEST, attained // _QUANTUM)
    best, served, before = None, 0, 0
    for done, time in enumerate(left, start=1):
        # So many get this far; what they take together up to here, for each that completes by then.
        served += (len(left) - done + 1) * (time - before)
        before = time
        longer = max(0, least - time) * (len(left) - done)
        if not longer or done == len(left) or left[done] > least:
            each = -(-(served + longer) // done)
            best = each if best is None else min(best, each)
    return best


def quantiles(durations: Sequence[int]) -> Sequence[int]:
    """Sorted durations, or where there are many of them their quantiles."""
    count = len(durations)
    return (
        durations
        if count <= _MANY
        else [durations[(2 * at + 1) * count // (2 * _MANY)] for at in range(_MANY)]
    )


def spread(durations: Iterable[int]) -> list[int]:
    """
    Sorted durations of which each stands for several from three quarters to four thirds of it.

    As they were seen, a job would count most a second before each of them, and little a second after.
    """
    return sorted(max(1, round(each * (4 / 3) ** part)) for each in durations for part in _PARTS)


def seconds_of_any(attained: int) -> int:
    """
    `seconds_per_completion` of a job of which nothing is known.

    It is as likely to take a minute or two as two weeks or four.

    For a duration S that is log-uniform from m = 1 minute to M = 30 days the hazard 1 / (a · ln(M / a)) falls
    for most of the time, so that the index is the hazard, and such jobs are served by least attained service.
    In the first minutes it is that of the best time to stop, about e · m; after M / e it stays as it is.
    """
    service = min(max(attained, _SHORTEST * math.e), _LONGEST / math.e)
    return math.ceil(service * math.log(_LONGEST / service))


def mean_left(durations: Sequence[int], attained: int) -> int | None:
    """
    What is left on average of jobs that have had `attained` seconds: E[S − a | S > a], rounded up.

    None if none of the durations is longer than that.
    """
    left = [each - attained for each in durations if each > attained]
    return -(-sum(left) // len(left)) if left else None


def mean_left_of_any(attained: int) -> int:
    """
    `mean_left` of a job of which nothing is known: S is log-uniform from a minute to 30 days.

        E[S − a | S > a] = (M − a) / ln(M / a) − a

    In the first minute it is that of a minute, and past M / e it stays as it is.
    """
    service = min(max(attained, _SHORTEST), _LONGEST / math.e)
    return math.ceil((_LONGEST - service) / math.log(_LONGEST / service) - service)
