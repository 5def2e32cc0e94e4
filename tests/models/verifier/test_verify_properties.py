"""What holds of the verifier whatever it is given."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, queue_limits
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.verifier.job_changes import Change, judge_placement
from gpuplan.models.verifier.objective import TERMS
from gpuplan.models.verifier.verify import TargetCheck, verify
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import judge
from tests.support.seeds import examples
from tests.support.strategies import instances
from tests.support.strategies.placement_strategies import candidates, legal_placements, wild_placements
from tests.support.strategies.snapshot_strategies import policies, queue_trees, snapshots

pytestmark = pytest.mark.slow

RICH = st.booleans().flatmap(lambda rich: snapshots(mig=rich, locality=rich))
few = settings(max_examples=examples(60), deadline=None)


@few
@given(st.data(), policies())
def test_any_placements_get_an_answer(data, policy):
    world = data.draw(RICH)

    placements = tuple(data.draw(wild_placements(world)))
    answer = verify(world, policy, placements)

    trial = TargetCheck(world, policy, DesiredState(placements))
    assert trial.keeps_rules() == (not answer.violations)
    assert trial.objective() == answer.objective
    assert answer.violations == tuple(sorted(set(answer.violations)))
    assert answer.terms.keys() <= TERMS.keys()
    assert all(points or name == "completion" for name, points in answer.terms.items())
    assert answer.objective == sum(answer.terms.values())


@few
@given(st.data(), st.randoms())
def test_order_means_nothing(data, random):
    def shuffled(items):
        return tuple(random.sample(items, len(items)))

    world = data.draw(RICH)
    placements = data.draw(candidates(world) | wild_placements(world))
    cluster = type(world.cluster)(nodes=shuffled(world.cluster.nodes))
    other = type(world)(
        taken_at=world.taken_at, cluster=cluster, queues=shuffled(world.queues), jobs=shuffled(world.jobs)
    )

    assert verify(other, Policy(), shuffled(placements)) == verify(world, Policy(), placements)


@few
@given(RICH, policies())
def test_doing_nothing_is_always_legal_and_worth_nothing(world, policy):
    answer = verify(world, policy, world.running_placements)

    assert (answer.violations, answer.objective) == ((), answer.terms.get("nominal", 0))


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_a_legal_plan_less_one_start_is_legal(data):
    """But for the order of priorities: that start may be of the highest."""
    world = data.draw(RICH)
    placements = data.draw(legal_placements(world))
    started = [each for each in placements if each not in world.running_placements]

    for dropped in started:
        assert judge(world, *(each for each in placements if each is not dropped), by_priority=False) == ()


@few
@given(st.data(), policies())
def test_a_plan_is_worth_the_sum_of_its_starts(data, policy):
    world = data.draw(RICH)
    placements = data.draw(legal_placements(world, policy))

    running = world.running_placements
    started = [each for each in placements if each not in running]

    def worth(chosen):
        answer = verify(world, policy, chosen)
        return answer.objective - answer.terms.get("nominal", 0)

    assert worth(placements) == sum(worth([*running, each]) for each in started)


@few
@given(st.data())
def test_gpus_are_overfull_exactly_where_a_plain_count_says_so(data):
    world = data.draw(snapshots())
    placements = data.draw(candidates(world) | wild_placements(world))
    known = {(one.name, index) for one in world.cluster.nodes for index in range(one.gpu_count)}
    was, total, whole = Counter(), Counter(), set()
    for each in world.running_placements:
        for held in each.replicas:
            was.update({(held.node, gpu.index): gpu.milli for gpu in held.gpus})
    for each in placements:
        for held in each.replicas:
            for gpu in held.gpus:
                if isinstance(gpu, GpuShare):
                    total[held.node, gpu.index] += gpu.milli
                    whole |= {(held.node, gpu.index)} if gpu.milli == MILLI else set()

    found = judge(world, *placements)

    blamed = {each.subject for each in found if each.rule in (Rule.GPU_CAPACITY, Rule.FRACTIONAL_GPU)}
    by_whole = {each.subject for each in found if each.rule is Rule.GPU_CAPACITY}
    for name, index in known:
        here, subject = (name, index), f"node {name} gpu {index}"
        if total[here] > max(MILLI, was[here]):
            assert subject in blamed
        if total[here] <= MILLI:
            assert subject not in blamed
        if subject in blamed:
            assert (subject in by_whole) == (here in whole)


@few
@given(st.data())
def test_quotas_agree_with_the_arithmetic_that_solvers_use(data):
    """
    Two statements of the same rules: the recurrence in models.queue and the verifier's own.

    A job with a GPU holds a core and 1000 MiB for each GPU, so that all amounts are the same.
    """
    tree = data.draw(queue_trees())
    names = st.sampled_from([queue.name for queue in tree])
    use = st.dictionaries(names, st.integers(1, 8000), max_size=4)
    running, started = data.draw(use), data.draw(use)
    jobs, placements = [], []
    for prefix, usage, runs in (("r", running, True), ("s", started, False)):
        for name, milli in usage.items():
            whole, share = divmod(milli, MILLI)
            for part, held in (("whole", [MILLI] * whole), ("share", [share] if share else [])):
                if held:
                    gpus = tuple(GpuShare(index=index, milli=each) for index, each in enumerate(held))
                    amounts = {"cpu_milli": sum(held), "memory_mib": sum(held)}
                    where = replica(f"{prefix}-{name}-{part}").model_copy(update={"gpus": gpus, **amounts})
                    asks = {"gpus": whole} if part == "whole" else {"milli": share}
                    one = job(f"{prefix}-{name}-{part}", queue=name, at=[where] if runs else None, **asks)
                    jobs.append(one.model_copy(update={"request": one.request.model_copy(update=amounts)}))
                    placements.append(placement(jobs[-1].name, where))
    nodes = [node(each.name) for each in jobs]
    found = judge(snapshot(nodes=nodes, jobs=jobs, queues=tree), *placements)

    expected = set()
    for resource in (ALL_MODELS, "H100-80GB", CPUS, MEMORY):
        limits = queue_limits(tree, resource)
        before = limits.usage(running)
        after = limits.usage({name: running.get(name, 0) + started.get(name, 0) for name in before})
        for name, limit in limits.limit.items():
            if limit is not None and after[name] > max(limit, before[name]):
                subject = f"queue {name}" + (f" on {resource}" if resource == "H100-80GB" else "")
                text = {CPUS: f"{print_milli(after[name])} CPU core", MEMORY: f"{after[name]} MiB of memory"}
                expected.add((subject, text.get(resource, f"{print_milli(after[name])} GPU")))
    assert {(each.subject, each.found.rstrip("s")) for each in found} == expected


# --- all that a cluster may have ---------------------------------------------------------------------------


def everything(seed, *features):
    make = instances.everything_mixed if seed % 2 else instances.everything
    return make(seed, features=features or instances.FEATURES, share=0.6)


SEEDS = st.integers(0, 10_000)


@st.composite
def wild_nodes(draw, world):
    """Nodes and names, some that may be added and removed and many that may not."""
    known = world.cluster.nodes
    templates = [pool.template for pool in world.cluster.pools]
    added = st.builds(
        lambda node, name, pool: node.model_copy(update={"name": name, "pool": pool}),
        st.sampled_from([*known, *templates]),
        st.sampled_from(("new-1", "new-2", known[0].name)),
        st.sampled_from(("p", "no-pool", None)),
    )
    removed = st.sampled_from([*(node.name for node in known), "gone", "new-1"])
    return (
        tuple(draw(st.lists(added, max_size=3))),
        tuple(draw(st.lists(removed, max_size=3))),
    )


@st.composite
def disturbed(draw, world):
    """What runs, each job in part, or in several places, or elsewhere, or not at all; and a few wild ones."""
    names = st.sampled_from([node.name for node in world.cluster.nodes])
    placements = []
    for each in world.running_placements:
        replicas = list(each.replicas)
        for deed in draw(st.lists(st.sampled_from(("drop", "double", "move")), max_size=2)):
            at = draw(st.integers(0, len(replicas) - 1)) if replicas else 0
            if deed == "drop":
                replicas = replicas[:at] + replicas[at + 1 :]
            elif replicas:
                elsewhere = replicas[at].model_copy(update={"node": draw(names)})
                replicas[at : at + 1] = [replicas[at], elsewhere] if deed == "double" else [elsewhere]
        if replicas:
            placements.append(each.model_copy(update={"replicas": tuple(replicas)}))
    return (*placements, *draw(wild_placements(world))[:2])


@few
@given(st.data(), SEEDS)
def test_any_target_gets_an_answer_whatever_the_order(data, seed):
    instance = everything(seed)
    world, draw = instance.snapshot, random.Random(seed)
    placements = data.draw(disturbed(world) | wild_placements(world))
    added, removed = data.draw(wild_nodes(world))
    # Of two nodes added under one name the first is the one that counts.
    unique = {node.name: node for node in added}.values()

    answer = verify(world, instance.policy, placements, added=added, removed=removed)
    one = verify(world, instance.policy, placements, added=tuple(unique), removed=removed)
    other = verify(
        world,
        instance.policy,
        draw.sample(placements, len(placements)),
        added=tuple(draw.sample(list(unique), len(unique))),
        removed=tuple(draw.sample(removed, len(removed))),
    )

    assert one == other
    assert answer.objective == sum(answer.terms.values())


@few
@given(SEEDS)
def test_leaving_everything_as_it_is_breaks_no_rule_and_costs_only_what_is_left_undone(seed):
    instance = everything(seed)

    answer = verify(instance.snapshot, instance.policy, instance.snapshot.running_placements)

    assert answer.violations == ()
    assert answer.terms.keys() <= {"completion", "guarantee", "nominal", "fragmentation"}
    assert answer.terms["completion"] == 0


@few
@given(st.data())
def test_what_becomes_of_a_job_is_a_matter_of_multisets(data):
    places = st.lists(st.sampled_from([replica(gpus=(index,)) for index in range(3)]), min_size=1, max_size=4)
    before, after = data.draw(places), data.draw(places)
    runs = job("r", gpus=1, replicas=(1, 4), at=before)

    occupant = judge_placement(runs, placement("r", *after))

    had, has = (Counter(each.gpus[0].index for each in replicas) for replicas in (before, after))
    if had == has:
        expected, new = Change.KEPT, Counter()
    elif len(before) == len(after):
        expected, new = Change.MOVED, has
    elif had > has:
        expected, new = Change.SHRUNK, Counter()
    elif has > had:
        expected, new = Change.GROWN, has - had
    else:
        expected, new = Change.REPLACED, has
    assert occupant.change is expected
    assert Counter(each.gpus[0].index for each in occupant.new_replicas) == new
