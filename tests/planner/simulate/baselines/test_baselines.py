"""Baselines: small queues are served as the papers say, and no rule on places is broken."""

from __future__ import annotations

import random
from datetime import timedelta
from functools import cache
from itertools import islice, permutations

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Policy
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.simulate.baselines import BASELINES, decide
from gpuplan.planner.simulate.run_options import BASELINE_NAMES, EpochClock
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.trace import Physics
from tests.support.builders.build import NOW, job, node, queue, replica, snapshot
from tests.support.harness.baseline_runs import FREE, MINUTE, comes, epochs, scores, starts, trace
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.random_traces import random_trace

PREEMPTIVE = {"srpt", "srsf", "lrpt", "las", "least-slack", "max-min"}
OF_PLANS = {Rule.EVICTION, Rule.PREEMPTION, Rule.PRIORITY, Rule.ORDER, Rule.PROMISES, Rule.DAMAGE}
"""Rules on what a plan may do to running and promised jobs, not on where jobs may be."""
MANY_SEEDS = range(300 if EVERY_SEED else 6)
SEEDS = range(40 if EVERY_SEED else 2)


def test_the_command_line_knows_their_names():
    assert tuple(BASELINES) == BASELINE_NAMES


def test_a_name_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(PlannerError, match=r"among fifo, fifo-skip, .*; found 'fefo'"):
        decide("fefo", snapshot(nodes=[node()]), Policy(), {})


# --- orders without preemption -----------------------------------------------------------------------------


def blocked():
    """6 of 8 GPUs are in use for 40 minutes; a job on 8 waits in front of short ones on 2."""
    jobs = comes("first", 0, 40, gpus=6), comes("wide", 1, 10)
    return trace(*jobs, comes("short", 2, 20, gpus=2), comes("long", 3, 60, gpus=2))


def test_fifo_lets_nothing_pass_the_head_of_the_queue():
    assert starts("fifo", blocked()) == {"first": [0], "wide": [40], "short": [50], "long": [50]}


def test_fifo_with_skipping_starts_whatever_fits():
    assert starts("fifo-skip", blocked()) == {"first": [0], "short": [2], "long": [22], "wide": [82]}


def test_easy_lets_only_those_pass_that_do_not_delay_the_head():
    assert starts("easy", blocked()) == {"first": [0], "short": [2], "wide": [40], "long": [50]}


def test_easy_may_delay_the_second_in_the_queue_where_conservative_backfilling_does_not():
    held = comes("a", 0, 10, gpus=5), comes("b", 0, 30, gpus=2)
    queued = comes("head", 1, 10, gpus=4), comes("second", 2, 10, gpus=6), comes("late", 3, 40, gpus=1)
    given = trace(*held, *queued)

    # head starts at 10, and at 20 second finds the 6 GPUs that it needs, unless late has one until 43.
    easy, conservative = starts("easy", given), starts("conservative", given)
    assert (easy["head"], easy["late"], easy["second"]) == ([10], [3], [30])
    assert (conservative["head"], conservative["second"], conservative["late"]) == ([10], [20], [30])


def draw_queue(seed):
    """Jobs on parts of one node, some of which come while others wait: (name, minute, minutes, GPUs)."""
    draw = random.Random(f"queue {seed}")
    minutes = sorted(draw.randrange(40) for _ in range(14))
    return [
        (f"j{number:02d}", at, draw.randint(1, 30), draw.randint(1, 8)) for number, at in enumerate(minutes)
    ]


def first_opening(taken, now, minutes, gpus):
    """The first minute from which on one node of 8 GPUs has room beside (begin, end, GPUs)."""
    return next(
        begin
        for begin in sorted({now, *(end for _, end, _ in taken if end > now)})
        if all(
            sum(used for first, last, used in taken if first <= at < last) + gpus <= 8
            for at in {begin, *(first for first, _, _ in taken if begin <= first < begin + minutes)}
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_conservative_backfilling_starts_each_job_where_it_delays_none_that_came_before(seed):
    jobs = draw_queue(seed)
    taken, expected = [], {}
    for name, at, minutes, gpus in jobs:
        begin = first_opening(taken, at, minutes, gpus)
        taken.append((begin, begin + minutes, gpus))
        expected[name] = [begin]

    given = trace(*(comes(name, at, minutes, gpus=gpus) for name, at, minutes, gpus in jobs))

    assert starts("conservative", given) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_easy_never_delays_the_head_of_the_queue_while_estimates_are_exact(seed):
    jobs = {name: (at, minutes, gpus) for name, at, minutes, gpus in draw_queue(seed)}
    given = trace(*(comes(name, at, minutes, gpus=gpus) for name, (at, minutes, gpus) in jobs.items()))
    promised, began = {}, {}
    for each in epochs("easy", given):
        now = int((each.before.now - NOW).total_seconds()) // MINUTE
        running = {name: began[name] for name, task in each.before.tasks.items() if task.job.running}
        for name in [name for name in jobs if name in each.before.tasks and name not in running]:
            taken = [(begin, begin + jobs[one][1], jobs[one][2]) for one, begin in running.items()]
            begin = first_opening(taken, now, *jobs[name][1:])
            if begin > now:  # the head, before anything is backfilled
                promised.setdefault(name, begin)
                break
            running[name] = now
        began |= {one.job: now for one in each.happened if one.kind is JobEventKind.STARTED}

    assert promised
    assert all(began[name] <= latest for name, latest in promised.items())


def test_sjf_starts_the_shortest_first_and_stops_none():
    given = trace(comes("a", 0, 30), comes("b", 1, 20), comes("c", 2, 10))

    assert starts("sjf", given) == {"a": [0], "c": [30], "b": [40]}


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        ("priority-fifo", {"a": [0], "b": [30], "c": [60], "d": [50]}),
        ("priority-sjf", {"a": [0], "b": [40], "c": [60], "d": [30]}),
        ("priority-easy", {"a": [0], "b": [30], "c": [60], "d": [50]}),
    ],
)
def test_higher_priorities_come_first_whatever_the_order_within_them(baseline, expected):
    jobs = [
        comes("a", 0, 30),
        comes("c", 1, 5),
        comes("b", 2, 20, priority=1),
        comes("d", 3, 10, priority=1),
    ]

    assert starts(baseline, trace(*jobs)) == expected


def test_sjf_is_the_best_order_of_jobs_that_are_there_at_once():
    minutes = {"a": 7, "b": 3, "c": 11, "d": 5}
    given = trace(*(comes(name, 0, each) for name, each in minutes.items()))

    def mean(order):
        ends = [sum(order[: last + 1]) for last in range(len(order))]
        return sum(ends) / len(ends)

    best = min(mean(order) for order in permutations(minutes.values()))
    assert scores("sjf", given).completion.mean.value == pytest.approx(best * MINUTE)


def test_drf_serves_the_queue_with_the_smallest_dominant_share():
    # Of 8 GPUs and 32 cores, a job of q takes a quarter of the GPUs, one of r half of the cores.
    gpus = [job(f"q{number}", gpus=2, expected_duration=3600) for number in range(4)]
    cores = [job(f"r{number}", cpus=16, queue="r", expected_duration=3600) for number in range(4)]
    given = snapshot(nodes=[node(gpus=8, cpus=32)], jobs=[*gpus, *cores], queues=[queue(), queue("r")])

    running = {placement.job for placement in decide("drf", given, Policy(), {})}

    # q 0 → q0 (1/4), r 0 → r0 (1/2), q → q1 (1/2), q → … until nothing of a queue fits.
    assert running == {"q0", "q1", "q2", "q3", "r0", "r1"}
    few = given.model_copy(
        update={"cluster": given.cluster.model_copy(update={"nodes": (node(gpus=4, cpus=32),)})}
    )
    # Shares are then halves: they take turns, and each queue has two jobs.
    assert {placement.job for placement in decide("drf", few, Policy(), {})} == {"q0", "q1", "r0", "r1"}


def test_drf_lets_queues_take_turns_though_one_came_first():
    hour = timedelta(hours=1)
    early = [job(f"q{number}", gpus=2, waited=hour, expected_duration=3600) for number in range(4)]
    late = [job(f"r{number}", gpus=2, queue="r", expected_duration=3600) for number in range(4)]
    given = snapshot(nodes=[node(gpus=8)], jobs=[*early, *late], queues=[queue(), queue("r")])

    assert {each.job for each in decide("drf", given, Policy(), {})} == {"q0", "q1", "r0", "r1"}


# --- with preemption ---------------------------------------------------------------------------------------


def best_mean(jobs):
    """Of all preemptive schedules of (release, length) on one machine, in whole steps: the least mean end."""

    @cache
    def total(now, left):
        ready = [index for index, each in enumerate(left) if each and jobs[index][0] <= now]
        if not ready:
            return total(now + 1, left) if any(left) else 0
        return min(one_step(now, left, index) for index in ready)

    def one_step(now, left, index):
        ended = now + 1 - jobs[index][0] if left[index] == 1 else 0
        return ended + total(now + 1, (*left[:index], left[index] - 1, *left[index + 1 :]))

    return total(0, tuple(length for _, length in jobs)) / len(jobs)


@pytest.mark.parametrize(
    "jobs",
    [
        [(0, 5), (1, 2), (2, 1)],
        [(0, 4), (0, 3), (1, 1), (3, 2)],
        [(0, 6), (2, 3), (3, 1), (4, 2)],
        [(0, 3), (4, 4), (5, 1), (5, 2)],
    ],
)
def test_srpt_on_one_machine_has_the_least_mean_completion_there_is(jobs):
    given = trace(*(comes(f"j{number}", *each) for number, each in enumerate(jobs)), physics=FREE)

    assert scores("srpt", given).completion.mean.value == pytest.approx(best_mean(jobs) * MINUTE)


def test_srpt_stops_a_long_job_for_a_short_one_and_srsf_looks_at_gpus_too():
    jobs = comes("long", 0, 60), comes("short", 10, 20)
    assert starts("srpt", trace(*jobs, physics=FREE)) == {"long": [0, 30], "short": [10]}

    # 20 minutes on 8 GPUs are more service than an hour on one, and less than what is left of it on 4.
    wide = comes("wide", 10, 20)
    assert starts("srsf", trace(comes("thin", 0, 60, gpus=1), wide, physics=FREE)) == {
        "thin": [0],
        "wide": [60],
    }
    assert starts("srsf", trace(comes("thin", 0, 60, gpus=4), wide, physics=FREE))["wide"] == [10]


def test_lrpt_takes_the_longest_first_and_stops_a_shorter_one_that_has_saved_its_state():
    jobs = comes("short", 0, 30), comes("long", 10, 60)
    quick = Physics(checkpoint_every=MINUTE, checkpoint=0, restart=0)

    assert starts("lrpt", trace(*jobs, physics=quick)) == {"short": [0, 70], "long": [10]}
    assert starts("lrpt", trace(*jobs, physics=Physics(0, 0, 0)))["long"] == [30]


def test_what_is_stopped_pays_for_it_as_under_a_plan():
    jobs = comes("long", 0, 60), comes("short", 10, 20)
    found = scores(
        "srpt", trace(*jobs, physics=Physics(checkpoint_every=4 * MINUTE, checkpoint=60, restart=120))
    )

    # 8 of 10 minutes were saved; coming back at 30 takes 3 minutes, and 52 minutes are left.
    assert found.completion.p99.value == (30 + 3 + 52) * MINUTE
    assert (found.restarts, found.preemptions) == (1, 1)
    assert found.lost_gpu_hours == pytest.approx(8 * 2 / 60, abs=1e-3)
    assert found.idle_gpu_hours == pytest.approx(8 * 3 / 60, abs=1e-3)


def test_only_as_many_are_stopped_as_a_job_needs_the_places_of():
    running = comes("a", 0, 60, gpus=4), comes("b", 0, 90, gpus=2), comes("c", 0, 80, gpus=2)

    found = starts("srpt", trace(*running, comes("new", 10, 5, gpus=2), physics=FREE))

    assert found == {"a": [0], "b": [0, 15], "c": [0], "new": [10]}


def test_an_elastic_job_needs_the_room_of_its_fewest_replicas_only():
    running = comes("long", 0, 90, gpus=4), comes("fixed", 0, 90, gpus=4, preemptible=False)
    elastic = comes("elastic", 10, 5, gpus=4, replicas=(1, 4))

    assert starts("srpt", trace(*running, elastic, physics=FREE))["elastic"] == [10]


def test_a_job_that_must_not_be_stopped_is_not():
    jobs = comes("long", 0, 60, preemptible=False), comes("short", 10, 20)

    assert starts("srpt", trace(*jobs, physics=FREE)) == {"long": [0], "short": [60]}


def test_las_serves_a_newcomer_before_what_had_more_than_a_gpu_hour():
    physics = Physics(checkpoint_every=MINUTE, checkpoint=0, restart=0)
    # At 5 minutes the first has had 40 GPU-minutes, at 10 it has had 80, more than one GPU-hour.
    early, late = comes("early", 5, 60), comes("late", 10, 4)

    assert starts("las", trace(comes("first", 0, 60), late, physics=physics)) == {
        "first": [0, 14],
        "late": [10],
    }
    assert starts("las", trace(comes("first", 0, 6), early, physics=physics)) == {"first": [0], "early": [6]}


def test_rules_that_take_turns_let_a_job_save_its_state_first():
    late = comes("late", 10, 4)

    found = starts("las", trace(comes("first", 0, 60), late, physics=Physics(checkpoint_every=3600)))

    assert found == {"first": [0], "late": [60]}


def test_least_slack_serves_the_job_that_is_latest_for_its_length():
    # long runs as if alone, so that its ratio stays 1; that of short grows while it waits.
    physics = Physics(checkpoint_every=MINUTE, checkpoint=0, restart=0)
    given = trace(comes("long", 0, 60), comes("short", 20, 10), physics=physics)

    # At 25 short is at (5 + 10) / 10, long at 60 / 60.
    assert starts("least-slack", given, EpochClock(5 * MINUTE)) == {"long": [0, 35], "short": [25]}


def test_max_min_shares_one_node_in_turns():
    physics = Physics(checkpoint_every=MINUTE, checkpoint=0, restart=0)
    given = trace(*(comes(name, 0, 120) for name in "abc"), physics=physics)

    had = [
        sorted(task.attained(each.before.now) for task in each.before.tasks.values())
        for each in islice(epochs("max-min", given, EpochClock(10 * MINUTE)), 19)
    ]

    # After each three rounds all have had the same, and never do two differ by more than one round.
    assert all(most - least <= 8000 * 10 * MINUTE for least, _, most in had)
    assert had[18] == [8000 * 60 * MINUTE] * 3


# --- places ------------------------------------------------------------------------------------------------


def three_nodes():
    """n0 has 3 of 8 GPUs and few cores free, n1 5, n2 2; the job asks for 2 GPUs and 8 cores."""

    def filler(name, gpus, cpus):
        at = [replica(name, gpus=range(gpus), cpus=cpus)]
        return job(f"on-{name}", gpus=gpus, cpus=cpus, at=at, expected_duration=3600)

    fillers = filler("n0", 5, 20), filler("n1", 3, 88), filler("n2", 6, 40)
    nodes = [node(f"n{index}", cpus=96) for index in range(3)]
    return snapshot(nodes=nodes, jobs=[*fillers, job("new", gpus=2, cpus=8)])


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        ("first-fit", "n0"),
        # 0 GPUs are then left on n2, 1 on n0 and 3 on n1.
        ("best-fit", "n2"),
        # Parts then used, GPUs and cores: n0 7/8 and 28/96, n1 5/8 and 96/96, n2 8/8 and 48/96.
        ("most-allocated", "n1"),
        ("least-allocated", "n0"),
        # With GPUs three times as important: n0 0.73, n1 0.72, n2 0.88.
        ("requested-to-capacity-ratio", "n2"),
    ],
)
def test_scorers_choose_the_node_that_their_formula_says(baseline, expected):
    placed = {each.job: each for each in decide(baseline, three_nodes(), Policy(), {})}

    assert placed["new"].nodes == {expected}


@pytest.mark.slow
@pytest.mark.parametrize("baseline", BASELINE_NAMES)
def test_no_rule_on_places_is_ever_broken(baseline):
    judged = 0
    for seed in SEEDS:
        given, policy = random_trace(seed, jobs=12, hours=3)
        for each in epochs(baseline, given, EpochClock(1200), policy, most=8):
            placements = each.after.snapshot().running_placements
            broken = verify(each.before.snapshot(), policy, placements).violations
            judged += len(placements)
            assert [one for one in broken if one.rule not in OF_PLANS] == []
    assert judged > 20


@pytest.mark.slow
@pytest.mark.parametrize("baseline", sorted(set(BASELINE_NAMES) - PREEMPTIVE))
def test_rules_without_preemption_leave_running_jobs_where_they_are(baseline):
    given, policy = random_trace(3, jobs=12, hours=3, outages=False)
    for each in epochs(baseline, given, EpochClock(1200), policy, most=6):
        assert {one.kind for one in each.happened} <= {JobEventKind.STARTED}


@pytest.mark.slow
@pytest.mark.parametrize("baseline", sorted(PREEMPTIVE))
def test_a_job_only_stops_for_another_to_start(baseline):
    stops = 0
    for seed in SEEDS:
        given, policy = random_trace(seed, jobs=25, hours=3, outages=False)
        for each in epochs(baseline, given, EpochClock(1200), policy, most=8):
            kinds = [one.kind for one in each.happened]
            stops += kinds.count(JobEventKind.PREEMPTED)
            assert JobEventKind.PREEMPTED not in kinds or JobEventKind.STARTED in kinds
    assert stops


@pytest.mark.parametrize("baseline", ["fifo", "easy", "conservative"])
def test_a_job_that_can_never_start_does_not_hold_up_the_queue(baseline):
    given = trace(comes("huge", 0, 10, gpus=16), comes("a", 1, 10))
    (_, second) = epochs(baseline, given, most=2)

    assert [(one.kind, one.job) for one in second.happened] == [(JobEventKind.STARTED, "a")]


def test_a_job_over_its_quota_waits_and_holds_no_reservation():
    one, two = (comes(name, 0, 10, gpus=4, queue="small") for name in "ab")
    given = trace(one, two, comes("c", 1, 10, gpus=4))
    limited = given.start.model_copy(update={"queues": (queue(), queue("small", nominal=4, borrowing=0))})
    given = type(given)(limited, given.coming)

    assert starts("easy", given) == {"a": [0], "c": [1], "b": [10]}


def test_decisions_are_the_same_whatever_the_order_of_the_jobs():
    given = three_nodes()
    turned = given.model_copy(update={"jobs": given.jobs[::-1]})

    for baseline in BASELINE_NAMES:
        assert decide(baseline, given, Policy(), {}) == decide(baseline, turned.canonical(), Policy(), {})


def test_they_start_at_the_instant_of_the_snapshot():
    (first,) = islice(epochs("fifo", trace(comes("a", 0, 10))), 1)

    assert first.after.tasks["a"].job.running.started_at == NOW


@pytest.mark.slow
@pytest.mark.parametrize("baseline", sorted(set(BASELINE_NAMES) - {"fifo", "easy", "conservative"}))
def test_nothing_waits_for_which_there_is_room(baseline):
    for seed in SEEDS:
        given, policy = random_trace(seed, jobs=12, hours=3)
        for each in epochs(baseline, given, EpochClock(1200), policy, most=6):
            after = each.after.snapshot()
            running = {job.name for job in after.jobs if job.running}
            assert {placement.job for placement in decide("fifo-skip", after, policy, {})} == running
