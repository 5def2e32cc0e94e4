"""What holds of later starts whatever they are."""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.plan.violation import Rule
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.verifier.verify import verify
from tests.support.builders.build import node, queue, replica, snapshot
from tests.support.builders.time_builders import ahead, later, runs, waits
from tests.support.harness.verify_helpers import judge
from tests.support.seeds import examples
from tests.support.strategies import time_strategies
from tests.support.strategies.placement_strategies import wild_placements

pytestmark = pytest.mark.slow

few = settings(max_examples=examples(60), deadline=None)
SLOTS = 5
GPUS = 3


@st.composite
def schedules(draw):
    """Jobs on one node of three GPUs, that run or start in some slot, often in each other's way."""

    def place():
        gpus = draw(st.sets(st.integers(0, GPUS - 1), min_size=1))
        return replica("n0", gpus=sorted(gpus))

    jobs, planned, free = [], [], set(range(GPUS))
    for number in range(draw(st.integers(0, 2))):
        gpus = draw(st.sets(st.sampled_from(sorted(free)), min_size=1)) if free else set()
        free -= gpus
        if gpus:
            hours = draw(st.sampled_from((0.5, 1, 1.5, 3, 9)))
            jobs.append(runs(f"r{number}", replica("n0", gpus=sorted(gpus)), hours=hours))
    for number in range(draw(st.integers(1, 4))):
        there = place()
        hours = draw(st.sampled_from((0.5, 1, 1.5, 2, 9)))
        jobs.append(waits(f"w{number}", gpus=len(there.gpus), hours=hours))
        planned.append(later(f"w{number}", draw(st.integers(1, SLOTS - 1)), there))
    queues = [queue(nominal=draw(st.integers(1, GPUS)))]
    return snapshot(nodes=[node(gpus=GPUS)], jobs=jobs, queues=queues), tuple(planned)


def held_by_slot(world, planned, policy):
    """Holders of each GPU in each slot, and how many GPUs are held, by a plain count."""
    slots, durations = TimeSlots.of(policy.horizon, world.taken_at), Durations(world, policy)
    spans = [
        (job.running.replicas, 0, slots.until(0, durations.remaining(job)))
        for job in world.jobs
        if job.running
    ]
    for each in planned:
        seconds = durations.seconds(world.job_by_name[each.job], "H100-80GB")
        spans.append((each.replicas, each.slot, slots.until(each.slot, seconds)))
    holders, total = defaultdict(int), defaultdict(int)
    for replicas, first, until in spans:
        for slot in range(first, until):
            for held in replicas[0].gpus:
                holders[slot, held.index] += 1
                total[slot] += 1
    return holders, total


@given(schedules())
@settings(max_examples=examples(200))
def test_gpus_and_quotas_suffice_exactly_where_a_plain_count_says_so(given_):
    world, planned = given_
    policy = ahead(SLOTS)

    found = judge(world, *world.running_placements, policy=policy, planned=planned)

    holders, total = held_by_slot(world, planned, policy)
    limit = world.queues[0].quota.nominal // 1000
    running = sum(len(job.running.replicas[0].gpus) for job in world.jobs if job.running)
    by_rule = {rule: {each.subject for each in found if each.rule is rule} for rule in Rule}
    assert bool(by_rule[Rule.GPU_CAPACITY]) == any(count > 1 for count in holders.values())
    over = {slot for slot, count in total.items() if slot and count > limit}
    if not over:
        assert not by_rule[Rule.QUOTA]
    if running <= limit:
        assert bool(by_rule[Rule.QUOTA]) == bool(over)
    assert {each.rule for each in found} <= {Rule.GPU_CAPACITY, Rule.QUOTA}


@given(schedules(), st.data())
@few
def test_what_is_legal_stays_so_without_one_start(given_, data):
    world, planned = given_
    dropped = data.draw(st.sampled_from(planned))

    def judged(starts):
        return set(judge(world, *world.running_placements, policy=ahead(SLOTS), planned=starts))

    if not judged(planned):
        assert not judged(tuple(each for each in planned if each is not dropped))


@given(schedules(), st.data())
@few
def test_what_each_start_earns_does_not_depend_on_the_others(given_, data):
    world, planned = given_
    policy = ahead(SLOTS)

    def earned(starts):
        return verify(world, policy, world.running_placements, planned=starts).objective

    assert earned(planned) == sum(earned((each,)) for each in planned)
    assert earned(()) == 0


@st.composite
def wild_starts(draw, world):
    """Later starts of all sorts of jobs in all sorts of slots, in places that wild placements are in."""
    places = draw(wild_placements(world))
    names = st.sampled_from([*(job.name for job in world.jobs), "ghost"])
    return tuple(
        LaterStart(
            draw(names) if draw(st.booleans()) else place.job, draw(st.integers(-1, 7)), place.replicas
        )
        for place in places
    )


@given(st.data(), st.integers(0, 10_000))
@few
def test_any_later_starts_get_an_answer_whatever_the_order(data, seed):
    instance = time_strategies.instance(seed)
    world, draw = instance.snapshot, random.Random(seed)
    now, planned = data.draw(wild_placements(world)), data.draw(wild_starts(world))
    placements = (*world.running_placements, *now)

    answer = verify(world, instance.policy, placements, planned=planned)
    other = verify(
        world,
        instance.policy,
        draw.sample(placements, len(placements)),
        planned=tuple(draw.sample(planned, len(planned))),
    )

    assert answer == other
    assert answer.objective == sum(answer.terms.values())


@given(st.integers(0, 10_000))
@few
def test_leaving_everything_as_it_is_breaks_promises_at_most(seed):
    instance = time_strategies.instance(seed)

    answer = verify(instance.snapshot, instance.policy, instance.snapshot.running_placements)

    assert {each.rule for each in answer.violations} <= {Rule.PROMISES}
    assert answer.terms.keys() <= {"completion", "guarantee", "nominal", "fragmentation"}
    assert answer.terms["completion"] == 0


@given(st.integers(0, 10_000))
@few
def test_a_plan_of_this_instant_does_not_ask_how_far_another_looks(seed):
    """With one slot its length means nothing, but for jobs that have to leave for a window."""
    instance = time_strategies.instance(seed, slots=1)
    world = instance.snapshot
    cluster = world.cluster.model_copy(update={"reservations": ()})
    world = world.model_copy(update={"cluster": cluster})
    longer = instance.policy.horizon.model_copy(update={"length": 7200})
    policy = instance.policy.model_copy(update={"horizon": longer})

    assert verify(world, policy, ()) == verify(world, instance.policy, ())
