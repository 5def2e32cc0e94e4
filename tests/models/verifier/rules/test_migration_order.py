import random
from itertools import permutations

import pytest

from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Disruption, MigPolicy, Policy
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, holding, judge, rules

MOVES = rules(migrate=True, priority_gap=0)
MIG = Policy(disruption=Disruption(migrate=True), mig=MigPolicy(switch_mode=True))


def on(*gpus, node="n0", **more):
    return replica(node, gpus=gpus, **more)


def runs(name, *replicas, **more):
    wanted = {"gpus": len(replicas[0].gpus)} if "milli" not in more and "mig" not in more else {}
    return job(name, replicas=len(replicas), at=replicas, **wanted, **more)


def sliced(*slices, node="n0"):
    return replica(node, mig=slices)


def stuck(name, *blockers):
    found = f"waits for {', '.join(blockers)} to move"
    return broken(Rule.ORDER, f"job {name}", found, "an order in which every move finds room")


def carry_out(jobs, *placements, nodes=None, policy=MOVES):
    nodes = [node("n0", gpus=2), node("n1", gpus=2)] if nodes is None else nodes
    return judge(snapshot(nodes=nodes, jobs=jobs), *placements, policy=policy)


def test_a_job_may_move_to_a_free_gpu():
    assert carry_out([runs("a", on(0))], placement("a", on(1))) == ()


def test_moves_may_follow_each_other():
    jobs = [runs("a", on(0)), runs("b", on(1))]

    assert carry_out(jobs, placement("a", on(1)), placement("b", on(0, node="n1"))) == ()
    assert carry_out(jobs, placement("b", on(0)), placement("a", on(0, node="n1"))) == ()


def test_two_jobs_do_not_change_places():
    jobs = [runs("a", on(0)), runs("b", on(1))]

    assert carry_out(jobs, placement("a", on(1)), placement("b", on(0))) == (
        *stuck("a", "b"),
        *stuck("b", "a"),
    )


def test_nor_do_three_in_a_circle():
    jobs = [runs("a", on(0)), runs("b", on(1)), runs("c", on(0, node="n1"))]

    found = carry_out(jobs, placement("a", on(1)), placement("b", on(0, node="n1")), placement("c", on(0)))

    assert found == (*stuck("a", "b"), *stuck("b", "c"), *stuck("c", "a"))


def test_a_job_that_can_move_beside_a_circle_is_not_told():
    jobs = [runs("a", on(0)), runs("b", on(1)), runs("c", on(0, node="n1"))]

    found = carry_out(jobs, placement("a", on(1)), placement("b", on(0)), placement("c", on(1, node="n1")))

    assert found == (*stuck("a", "b"), *stuck("b", "a"))


def test_a_jobs_own_old_places_are_free_for_itself():
    assert carry_out([runs("a", on(0), on(1))], placement("a", on(1), on(0, node="n1"))) == ()
    assert carry_out([runs("a", on(0, 1))], placement("a", on(1, 0, node="n1"))) == ()


def test_what_stopped_and_shrunk_jobs_held_is_free_at_once():
    stops = runs("b", on(1))
    shrinks = job("c", gpus=1, replicas=(1, 2), at=[on(0, node="n1"), on(1, node="n1")])
    moves = [
        job("a", gpus=1, replicas=2, priority=1, at=[on(0), on(0, node="n2")]),
    ]

    found = carry_out(
        [stops, shrinks, *moves],
        placement("c", on(0, node="n1")),
        placement("a", on(1), on(1, node="n1")),
        nodes=[node("n0", gpus=2), node("n1", gpus=2), node("n2", gpus=1)],
    )

    assert found == ()


def test_jobs_that_start_or_grow_come_last():
    starts, grows = job("s", gpus=1), job("g", gpus=1, replicas=(1, 2), at=[on(1, node="n1")])
    moves = runs("a", on(0))

    found = carry_out(
        [starts, grows, moves, runs("b", on(1))],
        placement("s", on(0)),
        placement("g", on(1, node="n1"), on(1)),
        placement("a", on(0, node="n2")),
        placement("b", on(1, node="n2")),
        nodes=[node("n0", gpus=2), node("n1", gpus=2), node("n2", gpus=2)],
    )

    assert found == ()


def cores(name, where, *, cpus=4, **more):
    return job(name, cpus=cpus, at=[replica(where, cpus=cpus)], **more)


def exchange_beside(*others, after):
    """Jobs with 4 of 8 cores each change places between n0 and n1, where another 4 are held."""
    nodes = [node(f"n{number}", cpus=8) for number in range(3)]
    jobs = [cores("a", "n1"), cores("b", "n0"), cores("stays", "n1"), *others]
    on_n0, on_n1 = replica("n0", cpus=4), replica("n1", cpus=4)
    return carry_out(
        jobs, jobs[2].placement, placement("a", on_n0), placement("b", on_n1), *after, nodes=nodes
    )


def test_no_job_waits_for_what_a_start_or_growth_will_take():
    here, there = replica("n0", cpus=4), replica("n2", cpus=4)
    starts = job("s", cpus=4)
    grows = job("g", cpus=4, replicas=(1, 2), at=[there])

    assert exchange_beside(starts, after=[placement("s", here)]) == ()
    assert exchange_beside(grows, after=[placement("g", there, here)]) == ()


def test_what_a_grown_or_shrunk_job_keeps_is_not_free():
    here, there = replica("n0", cpus=4), replica("n2", cpus=4)
    both = (*stuck("a", "b"), *stuck("b", "a"))
    grows = job("g", cpus=4, replicas=(1, 2), at=[here])
    shrinks = job("s", cpus=4, replicas=(1, 2), at=[here, there])

    assert exchange_beside(grows, after=[placement("g", here, there)]) == both
    assert exchange_beside(shrinks, after=[placement("s", here)]) == both
    assert exchange_beside(shrinks, after=[placement("s", there)]) == ()


def test_shares_change_places_only_where_there_is_room():
    def shares(milli):
        jobs = [
            runs("a", on(0, milli=milli), milli=milli),
            runs("b", on(1, milli=milli), milli=milli),
        ]
        return carry_out(jobs, placement("a", on(1, milli=milli)), placement("b", on(0, milli=milli)))

    assert shares(500) == ()
    assert shares(501) == (*stuck("a", "b"), *stuck("b", "a"))


def test_cpu_memory_disk_and_countable_resources_must_be_free_too():
    nodes = [node(name, cpus=8, memory_gib=8, disk_mib=8, resources={"hca": 8}) for name in ("n0", "n1")]

    def exchange(**held):
        def at(name):
            return holding(replica(name), **held)

        jobs = [job(name) for name in "ab"]
        jobs = [each.model_copy(update={"request": each.request.model_copy(update=held)}) for each in jobs]
        old = [at("n0"), at("n1")]
        running = [
            each.model_copy(update={"running": job(at=[place]).running})
            for each, place in zip(jobs, old, strict=True)
        ]
        return carry_out(running, placement("a", at("n1")), placement("b", at("n0")), nodes=nodes)

    both = (*stuck("a", "b"), *stuck("b", "a"))
    assert exchange(cpu_milli=4000, memory_mib=4096, disk_mib=4, resources={"hca": 4}) == ()
    assert exchange(cpu_milli=4001) == both
    assert exchange(memory_mib=4097) == both
    assert exchange(disk_mib=5) == both
    assert exchange(resources={"hca": 5}) == both


def test_a_job_that_waited_for_several_leaves_its_own_places_once():
    nodes = [node("n0", cpus=8), node("n1", cpus=16), node("n2", cpus=8), node("n3", cpus=8)]
    waits, first, second = cores("a", "n1"), cores("b", "n0"), cores("c", "n0")
    stays, here, there = cores("s", "n1"), cores("p", "n1", cpus=8), cores("q", "n2", cpus=8)

    # Once a is gone, 4 of the 16 cores of n1 are free: p and q, with 8 each, cannot change places.
    found = carry_out(
        [waits, first, second, stays, here, there],
        stays.placement,
        *(placement(name, replica(to, cpus=4)) for name, to in (("a", "n0"), ("b", "n3"), ("c", "n3"))),
        placement("p", replica("n2", cpus=8)),
        placement("q", replica("n1", cpus=8)),
        nodes=nodes,
    )

    assert found == (*stuck("p", "q"), *stuck("q", "p"))


def test_overcommitted_cpu_counts_for_less():
    nodes = [node("n0", cpus=8), node("n1", cpus=8)]
    jobs = [
        job(name, cpus=8, qos="burstable", at=[replica(where, cpus=8)])
        for name, where in (("a", "n0"), ("b", "n1"))
    ]
    after = [placement("a", replica("n1", cpus=8)), placement("b", replica("n0", cpus=8))]

    twice = snapshot(nodes=nodes, jobs=jobs, overcommit={"burstable": {"cpus": 2}})

    assert judge(twice, *after, policy=MOVES) == ()
    assert len(judge(snapshot(nodes=nodes, jobs=jobs), *after, policy=MOVES)) == 2


def test_a_node_where_too_much_runs_already_lets_moves_happen():
    nodes = [node("n0", cpus=8), node("n1", cpus=2)]
    stays, stops, goes = (cores(name, "n0", cpus=cpus) for name, cpus in (("s", 6), ("x", 8), ("g", 2)))
    comes = cores("c", "n1", cpus=2, priority=1)

    # 16 of 8 cores were held: c takes a part of what x gave up, and g what c gave up.
    found = carry_out(
        [stays, stops, goes, comes],
        stays.placement,
        placement("g", replica("n1", cpus=2)),
        placement("c", replica("n0", cpus=2)),
        nodes=nodes,
    )

    assert found == ()


def test_only_what_a_mover_takes_must_be_free():
    full = node("n0", cpus=8, memory_gib=8)
    stays = job("s", cpus=12, at=[replica("n0", cpus=12)])
    comes = job("c", memory_gib=1, at=[replica("n1", memory_gib=1)])

    assert (
        carry_out(
            [stays, comes],
            stays.placement,
            placement("c", replica("n0", memory_gib=1)),
            nodes=[full, node("n1")],
        )
        == ()
    )


def test_mig_instances_change_places_only_where_slices_are_free():
    def exchange(profile, one, other):
        jobs = [
            runs(name, sliced((0, profile, start)), mig={profile: 1})
            for name, start in (("a", one), ("b", other))
        ]
        nodes = [node("n0", mig={0: ((profile, one), (profile, other))})]
        after = [placement("a", sliced((0, profile, other))), placement("b", sliced((0, profile, one)))]
        return carry_out(jobs, *after, nodes=nodes, policy=MIG)

    assert exchange("3g.40gb", 0, 4) == (*stuck("a", "b"), *stuck("b", "a"))
    assert exchange("1g.10gb", 0, 1) == (*stuck("a", "b"), *stuck("b", "a"))


def test_an_instance_waits_until_all_of_its_slices_are_free():
    small = [
        runs(name, sliced((0, "1g.10gb", start)), mig={"1g.10gb": 1}) for name, start in (("a", 0), ("b", 3))
    ]
    large = runs("c", sliced((1, "4g.40gb", 0)), mig={"4g.40gb": 1})
    nodes = [
        node("n0", gpus=2, mig={0: (("1g.10gb", 0), ("1g.10gb", 3)), 1: (("4g.40gb", 0), ("1g.10gb", 4))})
    ]
    to_0 = placement("c", sliced((0, "4g.40gb", 0)))

    def after(one, other):
        return [placement("a", sliced((1, "1g.10gb", one))), placement("b", sliced((1, "1g.10gb", other)))]

    assert carry_out([*small, large], to_0, *after(4, 5), nodes=nodes, policy=MIG) == ()
    assert carry_out([*small, large], to_0, *after(4, 3), nodes=nodes, policy=MIG) == (
        *stuck("b", "c"),
        *stuck("c", "b"),
    )


def test_a_job_does_not_move_onto_slices_of_its_own_instances():
    """The new instances must exist before the job comes, and cannot while it still has the old ones."""
    request = {"1g.10gb": 1, "2g.20gb": 1}
    old = sliced((0, "1g.10gb", 0), (0, "2g.20gb", 2))
    nodes = [node("n0", mig={0: (("1g.10gb", 0), ("2g.20gb", 2))})]

    def to(*slices):
        return carry_out(
            [runs("a", old, mig=request)], placement("a", sliced(*slices)), nodes=nodes, policy=MIG
        )

    assert to((0, "1g.10gb", 0), (0, "2g.20gb", 4)) == ()
    assert to((0, "1g.10gb", 2), (0, "2g.20gb", 0)) == tuple(
        sorted(
            broken(Rule.ORDER, "job a", found, "instances that do not overlap its old ones")[0]
            for found in (
                "needs slices of its own 2g.20gb at slice 2 for 1g.10gb at slice 2",
                "needs slices of its own 1g.10gb at slice 0 for 2g.20gb at slice 0",
            )
        )
    )


def test_a_gpu_is_switched_to_mig_mode_only_once_it_is_free():
    whole = runs("a", on(0))
    instance = runs("b", sliced((0, "1g.10gb", 0), node="n1"), mig={"1g.10gb": 1})
    nodes = [node("n0", gpus=2), node("n1", gpus=1, mig={0: (("1g.10gb", 0),)})]
    switched = placement("b", sliced((0, "1g.10gb", 0)))

    assert carry_out([whole, instance], switched, placement("a", on(1)), nodes=nodes, policy=MIG) == ()


def test_a_share_keeps_a_gpu_from_being_switched_however_small_it_is():
    share = runs("a", on(0, milli=10), milli=10, cpus=32)
    instance = runs("b", sliced((0, "1g.10gb", 0), node="n1"), mig={"1g.10gb": 1}, cpus=32)
    at_a, at_b = (
        holding(on(0, milli=10), cpu_milli=32000),
        holding(sliced((0, "1g.10gb", 0), node="n1"), cpu_milli=32000),
    )
    share = share.model_copy(update={"running": job(at=[at_a]).running})
    instance = instance.model_copy(update={"running": job(at=[at_b]).running})
    nodes = [node("n0", gpus=1, cpus=64), node("n1", gpus=2, cpus=32, mig={0: (("1g.10gb", 0),)})]

    # a needs the cores that b leaves, b needs the GPU that a leaves.
    found = carry_out(
        [share, instance],
        placement("a", holding(on(1, node="n1", milli=10), cpu_milli=32000)),
        placement("b", holding(sliced((0, "1g.10gb", 0)), cpu_milli=32000)),
        nodes=nodes,
        policy=MIG,
    )

    assert found == (*stuck("a", "b"), *stuck("b", "a"))


def test_two_instances_with_media_extensions_never_meet_on_a_gpu():
    profile = "1g.10gb+me"
    jobs = [runs(name, sliced((index, profile, 0)), mig={profile: 1}) for name, index in (("a", 0), ("b", 1))]
    nodes = [node("n0", gpus=3, mig={0: ((profile, 0),), 1: ((profile, 0),), 2: ()})]
    after = placement("a", sliced((1, profile, 3)))

    assert carry_out(jobs, after, placement("b", sliced((2, profile, 3))), nodes=nodes, policy=MIG) == ()
    assert carry_out(jobs, after, placement("b", sliced((0, profile, 3))), nodes=nodes, policy=MIG) == (
        *stuck("a", "b"),
        *stuck("b", "a"),
    )


def test_instances_of_an_unknown_model_are_told_apart_by_their_start():
    layout = tuple(("2g.20gb", start) for start in (0, 2, 4))
    nodes = [node("n0", model="X1", gpus=2, mig={0: layout, 1: (("2g.20gb", 0),)})]
    stays, goes, comes = (
        runs(name, sliced((index, "2g.20gb", start)), mig={"2g.20gb": 1})
        for name, index, start in (("s", 0, 0), ("g", 0, 4), ("c", 1, 0))
    )

    # All three starts of GPU 0 are in use for a moment.
    found = carry_out(
        [stays, goes, comes],
        stays.placement,
        placement("c", sliced((0, "2g.20gb", 2))),
        placement("g", sliced((1, "2g.20gb", 0))),
        nodes=nodes,
    )

    assert found == ()


def test_what_another_rule_forbids_is_not_told_as_a_matter_of_order():
    jobs = [runs("a", on(0)), runs("b", on(1)), runs("c", on(0, node="n1"))]

    found = carry_out(jobs, jobs[1].placement, placement("a", on(1)), placement("c", on(9, node="gone")))

    assert {each.rule for each in found} == {Rule.GPU_CAPACITY, Rule.SELECTION}


def test_a_job_that_is_changed_as_none_may_be_is_in_nobodys_way():
    broken_up = job("b", gpus=1, replicas=(1, 2), at=[on(1), on(1, node="n1")])

    found = carry_out([runs("a", on(0)), broken_up], placement("a", on(1)), placement("b", on(0)))

    assert {each.rule for each in found} == {Rule.EVICTION}


def some_order_works(old, new):
    """True if jobs on these GPUs can go to those one after the other."""
    for order in permutations(old):
        taken = dict(old)
        for name in order:
            if new[name] in {gpu for other, gpu in taken.items() if other != name}:
                break
            taken[name] = new[name]
        else:
            return True
    return False


@pytest.mark.slow
def test_moves_of_whole_gpus_are_judged_as_trying_every_order_judges_them():
    draw, seen = random.Random(0), []
    for _ in range(150):
        old = dict(zip("abcd", draw.sample(range(5), 4), strict=True))
        new = dict(zip("abcd", draw.sample(range(5), 4), strict=True))

        found = carry_out(
            [runs(name, on(gpu)) for name, gpu in old.items()],
            *(placement(name, on(gpu)) for name, gpu in new.items()),
            nodes=[node("n0", gpus=5)],
        )

        seen.append(found == ())
        assert seen[-1] == some_order_works(old, new)
    assert 30 < sum(seen) < 120
