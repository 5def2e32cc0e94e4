"""What holds of the verifier whatever it is given."""

from collections import Counter

from answers import candidates, legal_placements, wild_placements
from build import job, node, placement, replica, snapshot
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judging import judge
from strategies import policies, queue_trees, snapshots

from planner.models.placement import GpuShare
from planner.models.policy import Policy
from planner.models.queue import ALL_MODELS, queue_limits
from planner.models.units import MILLI, print_milli
from planner.models.verifier import verify
from planner.models.violation import Rule

RICH = st.booleans().flatmap(lambda rich: snapshots(mig=rich, locality=rich))
few = settings(max_examples=60, deadline=None)


@few
@given(st.data(), policies())
def test_any_placements_get_an_answer(data, policy):
    world = data.draw(RICH)

    answer = verify(world, policy, data.draw(wild_placements(world)))

    assert answer.violations == tuple(sorted(set(answer.violations)))
    assert answer.terms.keys() == {"completion"}
    assert answer.objective == sum(answer.terms.values()) >= 0


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

    assert (answer.violations, answer.objective) == ((), 0)


@few
@given(st.data())
def test_a_legal_plan_less_one_start_is_legal(data):
    world = data.draw(RICH)
    placements = data.draw(legal_placements(world))
    started = [each for each in placements if each not in world.running_placements]
    assume(started)
    dropped = data.draw(st.sampled_from(started))

    assert judge(world, *(each for each in placements if each is not dropped)) == ()


@few
@given(st.data(), policies())
def test_a_plan_is_worth_the_sum_of_its_starts(data, policy):
    world = data.draw(RICH)
    placements = data.draw(legal_placements(world, policy))

    alone = [verify(world, policy, [each]).objective for each in placements]

    assert verify(world, policy, placements).objective == sum(alone)


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

    blamed = {each.subject for each in found if each.rule in (Rule.STAIRCASE, Rule.SHARING)}
    by_whole = {each.subject for each in found if each.rule is Rule.STAIRCASE}
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
    """Two statements of the same rules: the recurrence in models.queue and the verifier's own."""
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
                    where = replica(f"{prefix}-{name}-{part}").model_copy(update={"gpus": gpus})
                    asks = {"gpus": whole} if part == "whole" else {"milli": share}
                    jobs.append(
                        job(f"{prefix}-{name}-{part}", queue=name, at=[where] if runs else None, **asks)
                    )
                    placements.append(placement(jobs[-1].name, where))
    nodes = [node(each.name) for each in jobs]
    found = judge(snapshot(nodes=nodes, jobs=jobs, queues=tree), *placements)

    expected = set()
    for resource in (ALL_MODELS, "H100-80GB"):
        limits = queue_limits(tree, resource)
        before = limits.usage(running)
        after = limits.usage({name: running.get(name, 0) + started.get(name, 0) for name in before})
        for name, limit in limits.limit.items():
            if limit is not None and after[name] > max(limit, before[name]):
                subject = f"queue {name}" + (f" on {resource}" if resource else "")
                expected.add((subject, f"{print_milli(after[name])} GPU"))
    assert {(each.subject, each.found.rstrip("s")) for each in found} == expected
