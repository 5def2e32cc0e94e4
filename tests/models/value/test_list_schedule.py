"""List scheduling: where a job begins, against every second in turn."""

from __future__ import annotations

import random
from bisect import bisect_right

import pytest

from gpuplan.models.value.list_schedule import Choice, FreeGpus, ListedJob, first_begin, first_start

MODEL = "H100-80GB"
TIMES = [0, 2, 3, 5, 7, 8, 10, 12]
END = 13


def profile(dice, counts, most):
    """Free GPUs that fall and rise, and are all free in the end."""
    return TIMES, [*(dice.choice(counts) for _ in TIMES[1:]), most]


def least(free, begins, seconds):
    """The fewest free GPUs in a span, second by second."""
    times, counts = free
    at = [
        max(k for k, time in enumerate(times) if time <= second) for second in range(begins, begins + seconds)
    ]
    return min(counts[k] for k in at)


def fits(job, choice, free, begins):
    room = sum(least(free[node], begins, choice.seconds) // job.gpus for node in choice.nodes)
    allowed = all(
        least(free[quota], begins, choice.seconds) >= job.gpus * job.replicas for quota in choice.quotas
    )
    return room >= job.replicas and allowed


@pytest.mark.parametrize("quotas", [(), (3,), (3, 4)])
@pytest.mark.parametrize("seed", range(20))
def test_a_gang_begins_when_all_its_replicas_have_room_and_quota_to_their_end(seed, quotas):
    dice = random.Random(seed)
    free = [profile(dice, (0, 4, 8), 8) for _ in range(3)]
    free += [profile(dice, (0, 8, 16, 24), 24) for _ in range(2)]
    choice = Choice(dice.randint(1, 5), MODEL, (0, 1, 2), quotas)
    gpus, replicas = dice.choice(((4, 3), (4, 4), (8, 2), (4, 1)))
    gang = ListedJob("gang", gpus, replicas, 1.0, (choice,))

    first = next(second for second in range(END) if fits(gang, choice, free, second))

    over_time = FreeGpus(free, [gpus])
    assert first_begin(gang, choice, over_time, 100, quotas) == first
    assert first_begin(gang, choice, over_time, first + choice.seconds, quotas) is None


@pytest.mark.parametrize("seed", range(40))
def test_a_job_completes_first_on_one_of_its_models_and_takes_what_is_free(seed):
    dice = random.Random(seed)
    free = [profile(dice, (0, 1, 2, 4), 4) for _ in range(4)] + [profile(dice, (0, 2, 4, 8), 8)]
    gpus, replicas = dice.choice(((1, 1), (2, 1), (2, 2)))
    choices = tuple(
        sorted(
            Choice(dice.randint(1, 6), model, nodes, dice.choice(((), (4,))))
            for model, nodes in (("A", (0, 1)), ("B", (2, 3)))
        )
    )
    job = ListedJob("job", gpus, replicas, 1.0, choices)

    left = FreeGpus(free, [gpus])
    start = first_start(job, choices, left)

    ends = [
        next(second for second in range(END) if fits(job, choice, free, second)) + choice.seconds
        for choice in choices
    ]
    assert start.begins + start.choice.seconds == min(ends)
    assert len(start.places) == replicas
    left.take(job, start)
    for number in (*start.choice.nodes, *start.choice.quotas):
        assert least(left.profiles[number], start.begins, start.choice.seconds) >= 0


@pytest.mark.parametrize("seed", range(40))
def test_jobs_in_turn_get_the_first_places_that_a_search_of_every_second_finds(seed):
    dice = random.Random(seed)
    free = FreeGpus([profile(dice, (0, 1, 2, 4, 8), 8) for _ in range(4)], (1, 2, 4, 8))
    nodes = (0, 1, 2, 3)
    for _ in range(12):
        choice = Choice(dice.randint(1, 6), MODEL, nodes)
        job = ListedJob("job", dice.choice((1, 2, 4, 8)), dice.choice((1, 1, 2)), 1.0, (choice,))
        before = free.copy()
        begins = next(second for second in range(99) if fits(job, choice, free.profiles, second))
        room = [least(each, begins, choice.seconds) for each in free.profiles]

        start = first_start(job, (choice,), free)

        assert start.begins == begins
        if job.replicas == 1:
            at = [counts[bisect_right(times, begins) - 1] for times, counts in free.profiles]
            fewest = min(at[node] for node in nodes if room[node] >= job.gpus)
            assert at[start.places[0]] == fewest
        free.take(job, start)
        assert before.profiles != free.profiles
        fresh = FreeGpus(free.profiles, (1, 2, 4, 8))
        assert free.first == fresh.first


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_again_and_what_is_too_short_for_all_that_follow_change_no_start(seed):
    dice, sizes, nodes = random.Random(seed), (1, 2, 4, 8), (0, 1, 2, 3)
    free = FreeGpus([profile(dice, (0, 1, 2, 4, 8), 8) for _ in nodes], sizes)
    plain, quick, takings = free.copy(), free.copy(), []
    for seconds in sorted(dice.randint(1, 6) for _ in range(12)):
        choice = Choice(seconds, MODEL, nodes)
        job = ListedJob("job", dice.choice(sizes), dice.choice((1, 1, 2)), 1.0, (choice,))

        start = first_start(job, (choice,), plain)

        assert first_start(job, (choice,), quick, seconds) == start
        takings.append(plain.take(job, start))
        quick.take(job, start)
    again = free.copy()
    again.take_again(takings)
    assert again.profiles == plain.profiles == quick.profiles != free.profiles
    assert again.first == plain.first
