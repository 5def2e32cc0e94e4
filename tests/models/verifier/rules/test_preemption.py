from gpuplan.models.plan.solution import Undo
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import MigPolicy, Policy
from tests.support.builders.build import MODEL, job, node, placement, queue, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, rules

HERE = replica(gpus=(0,))


def victim(name="v", *, priority=5, at=(HERE,), **more):
    return job(name, gpus=1, priority=priority, at=at, **more)


def comer(priority, **more):
    return job("c", gpus=1, priority=priority, **more)


def wrong(priority, victim="v", of=5, least=6, node="n0", comer="c"):
    return broken(
        Rule.PREEMPTION,
        f"job {comer} on node {node}",
        f"priority {priority} in place of job {victim} of priority {of}",
        f"priority {least} or more",
    )


def test_a_job_of_higher_priority_may_come_in_place_of_a_stopped_one():
    assert judge(snapshot(jobs=[victim(), comer(6)]), placement("c", HERE)) == ()


def test_one_of_the_same_or_a_lower_priority_may_not():
    for priority in (5, 0):
        world = snapshot(jobs=[victim(), comer(priority)])

        assert judge(world, placement("c", HERE)) == wrong(priority)


def test_the_policy_says_by_how_much_the_priority_must_be_higher():
    world = snapshot(jobs=[victim(), comer(7)])

    assert judge(world, placement("c", HERE), policy=rules(priority_gap=2)) == ()
    assert judge(world, placement("c", HERE), policy=rules(priority_gap=3)) == wrong(7, least=8)
    assert (
        judge(snapshot(jobs=[victim(), comer(5)]), placement("c", HERE), policy=rules(priority_gap=0)) == ()
    )


def test_gpus_that_were_free_beside_a_victim_are_for_any():
    world = snapshot(jobs=[victim(), comer(0), job("d", gpus=1, priority=6)])

    assert judge(world, placement("c", replica(gpus=(7,)))) == ()
    assert judge(world, placement("c", replica(gpus=(7,))), placement("d", HERE)) == ()
    assert judge(world, placement("d", replica(gpus=(7,))), placement("c", HERE)) == wrong(0)


def test_a_part_of_a_gpu_that_was_free_is_for_any():
    half = replica(gpus=(0,), milli=500)
    shares = job("v", milli=500, priority=5, at=(half,))
    world = snapshot(jobs=[shares, job("c", milli=500), job("d", milli=501)])

    assert judge(world, placement("c", half)) == ()
    assert judge(world, placement("d", replica(gpus=(0,), milli=501))) == wrong(0, comer="d")


def test_what_a_victim_frees_beside_gpus_is_not_for_any_either():
    nodes = [node(cpus=32)]
    cores = victim(cpus=20, at=[replica(gpus=(0,), cpus=20)])
    world = snapshot(nodes=nodes, jobs=[cores, comer(0, cpus=13), job("d", gpus=1, cpus=12)])

    found = judge(world, placement("c", replica(gpus=(1,), cpus=13)))

    assert found == beside("node n0", "33 CPU cores", "32 CPU cores")
    assert judge(world, placement("d", replica(gpus=(1,), cpus=12))) == ()


def test_memory_slices_of_a_victim_are_not_for_any():
    nodes = [node(gpus=1, mig={0: []})]
    instance = job("v", mig={"3g.40gb": 1}, priority=5, at=[replica(mig=[(0, "3g.40gb", 0)])])
    world = snapshot(nodes=nodes, jobs=[instance, job("c", mig={"1g.10gb": 1})])

    assert judge(world, placement("c", replica(mig=[(0, "1g.10gb", 3)]))) == wrong(0)
    assert judge(world, placement("c", replica(mig=[(0, "1g.10gb", 4)]))) == ()


def test_a_gpu_of_a_victim_is_not_switched_to_mig_mode_for_any():
    policy = Policy(mig=MigPolicy(switch_mode=True))
    world = snapshot(nodes=[node(gpus=1)], jobs=[victim(), job("c", mig={"1g.10gb": 1})])

    assert judge(world, placement("c", replica(mig=[(0, "1g.10gb", 0)])), policy=policy) == wrong(0)


def test_power_of_a_node_that_a_victim_frees_is_not_for_any():
    world = snapshot(
        nodes=[node(watts=700, power_cap_watts=1400)],
        jobs=[
            victim(),
            comer(
                0,
            ),
            job("d", gpus=2),
        ],
    )

    assert judge(world, placement("c", replica(gpus=(1,)))) == ()
    assert judge(world, placement("d", replica(gpus=(1, 2)))) == beside("node n0", "2100 W", "1400 W")


def test_a_victim_of_lower_priority_makes_room_for_those_that_outrank_it_alone():
    jobs = [victim(), victim("w", priority=2, at=[replica(gpus=(1,))]), comer(3)]

    assert judge(snapshot(jobs=jobs), placement("c", replica(gpus=(1,)))) == ()
    assert judge(snapshot(jobs=jobs), placement("c", HERE)) == wrong(3)


def test_other_nodes_are_not_concerned():
    world = snapshot(jobs=[victim(), comer(5)])

    assert judge(world, placement("c", replica("n1", gpus=(0,)))) == ()


def test_every_node_of_the_stopped_job_is_concerned():
    wide = job("v", gpus=1, priority=5, replicas=2, at=[HERE, replica("n1", gpus=(0,))])
    world = snapshot(jobs=[wide, comer(5)])

    assert judge(world, placement("c", replica("n1", gpus=(0,)))) == wrong(5, node="n1")


def test_of_several_victims_the_highest_priority_counts():
    low, high = (replica(gpus=(0,), milli=500) for _ in range(2))
    jobs = [
        job("v", milli=500, priority=5, at=[low]),
        job("w", milli=500, priority=8, at=[high]),
        comer(8),
    ]

    assert judge(snapshot(jobs=jobs), placement("c", HERE)) == wrong(8, "w", of=8, least=9)


def test_a_shrunk_job_counts_where_it_gave_up_a_replica():
    at = [HERE, replica("n1", gpus=(0,))]
    elastic = victim(at=at, replicas=(1, 2))
    world = snapshot(jobs=[elastic, comer(5)])

    assert judge(world, placement("v", at[0]), placement("c", at[1])) == wrong(5, node="n1")
    assert judge(world, placement("v", at[0]), placement("c", replica("n1", gpus=(3,)))) == ()


def test_a_job_that_moves_or_grows_onto_the_node_must_be_of_higher_priority_too():
    old = replica("n1", gpus=(0,))
    grows = job("c", gpus=1, priority=5, replicas=(1, 2), at=[old])
    moves = job("c", gpus=1, priority=5, at=[old])

    assert judge(snapshot(jobs=[victim(), grows]), placement("c", old, HERE)) == wrong(5)
    assert judge(snapshot(jobs=[victim(), moves]), placement("c", HERE), policy=rules(migrate=True)) == wrong(
        5
    )


def test_a_job_that_moves_within_the_node_is_new_there():
    moves = job("c", gpus=1, priority=5, at=[replica(gpus=(1,))])

    found = judge(snapshot(jobs=[victim(), moves]), placement("c", HERE), policy=rules(migrate=True))

    assert found == wrong(5)


def test_a_job_that_grows_elsewhere_may_stay_beside_a_victim():
    old = replica(gpus=(1,))
    grows = job("c", gpus=1, replicas=(1, 2), at=[old])

    assert judge(snapshot(jobs=[victim(), grows]), placement("c", old, replica("n1", gpus=(0,)))) == ()


def test_a_job_that_stays_is_of_any_priority():
    stays = job("c", gpus=1, at=[replica(gpus=(1,))])

    assert judge(snapshot(jobs=[victim(), stays]), stays.placement) == ()


def test_what_a_job_holds_that_stays_is_not_there_for_others():
    stays = job("s", gpus=1, cpus=10, at=[replica(gpus=(3,), cpus=10)])
    stopped = victim(cpus=12, at=[replica(gpus=(0,), cpus=12)])
    world = snapshot(nodes=[node(cpus=32)], jobs=[stopped, stays, comer(0, cpus=12)])

    found = judge(world, stays.placement, placement("c", replica(gpus=(1,), cpus=12)))

    assert found == beside("node n0", "34 CPU cores", "32 CPU cores")


def test_a_rollback_may_let_jobs_of_its_plan_follow_each_other():
    world = snapshot(jobs=[victim(), comer(0)])

    assert judge(world, placement("c", HERE), undo=Undo(jobs=frozenset({"v", "c"}))) == ()
    assert judge(world, placement("c", HERE), undo=Undo(jobs=frozenset({"v"}))) == wrong(0)


def test_a_job_that_moves_away_makes_room_for_any_job():
    world = snapshot(jobs=[victim(), comer(0)])

    found = judge(
        world, placement("v", replica("n1", gpus=(0,))), placement("c", HERE), policy=rules(migrate=True)
    )

    assert found == ()


def test_a_node_that_takes_nothing_is_not_judged_twice():
    world = snapshot(nodes=[node("n0", drain=True)], jobs=[victim(), comer(5)])

    assert [each.rule for each in judge(world, placement("c", HERE))] == [Rule.SELECTION]


# --- quotas and power --------------------------------------------------------------------------------------

ELSEWHERE = replica("n1", gpus=(0,))


def beside(subject, found, allowed, victim="v", of=5, least=6):
    told = f"{found} beside job {victim} of priority {of}, jobs of {least} or more not counted"
    return broken(Rule.PREEMPTION, subject, told, allowed)


def in_queue(*jobs, limit=1, **more):
    return snapshot(jobs=jobs, queues=[queue("q", nominal=limit, **more)])


def test_quota_that_a_stopped_job_frees_is_for_jobs_that_outrank_it():
    world = in_queue(victim(), comer(5), comer(6).model_copy(update={"name": "d"}))

    assert judge(world, placement("c", ELSEWHERE)) == beside("queue q", "2 GPUs", "1 GPU")
    assert judge(world, placement("d", ELSEWHERE)) == ()


def test_quota_that_was_free_beside_a_stopped_job_is_for_any():
    first, second = comer(6), comer(0).model_copy(update={"name": "d"})
    world = in_queue(victim(), first, second, limit=2)

    assert judge(world, placement("c", ELSEWHERE), placement("d", replica("n1", gpus=(1,)))) == ()


def test_quota_that_another_stopped_job_frees_is_for_those_that_outrank_that_one():
    jobs = [victim(), victim("w", priority=2, at=[replica(gpus=(1,))]), comer(3)]

    assert judge(in_queue(*jobs, limit=2), placement("c", ELSEWHERE)) == ()
    jobs[2] = comer(2)
    assert judge(in_queue(*jobs, limit=2), placement("c", ELSEWHERE)) == beside(
        "queue q", "3 GPUs", "2 GPUs", "w", of=2, least=3
    )


def test_quota_of_a_parent_is_freed_as_well():
    queues = [queue("root", nominal=2), queue("q", parent="root"), queue("p", parent="root")]
    world = snapshot(
        jobs=[victim(), victim("w", at=[replica(gpus=(1,))]), job("c", gpus=1, queue="p")], queues=queues
    )
    stays = placement("w", replica(gpus=(1,)))

    assert judge(world, stays, placement("c", ELSEWHERE)) == beside("queue root", "3 GPUs", "2 GPUs")


def test_what_a_queue_keeps_from_lending_is_not_freed_for_others():
    queues = [
        queue("root", nominal=1),
        queue("q", nominal=1, lending=0, parent="root"),
        queue("p", parent="root"),
    ]
    world = snapshot(jobs=[victim(), job("c", gpus=1, queue="p")], queues=queues)

    assert judge(world, placement("c", ELSEWHERE)) == ()


def test_quota_of_one_gpu_model_is_freed_too():
    queues = [queue("q", **{MODEL: 1})]
    world = snapshot(jobs=[victim(), comer(5)], queues=queues)

    assert judge(world, placement("c", ELSEWHERE)) == beside(f"queue q on {MODEL}", "2 GPUs", "1 GPU")


def test_quota_of_cpu_cores_is_freed_too():
    stopped = job("v", cpus=4, priority=5, at=[replica(cpus=4)])
    queues = [queue("q", cpus=6)]

    def judge_comer(priority, cpus):
        world = snapshot(jobs=[stopped, job("c", cpus=cpus, priority=priority)], queues=queues)
        return judge(world, placement("c", replica("n1", cpus=cpus)))

    assert judge_comer(6, 6) == ()
    assert judge_comer(5, 2) == ()
    assert judge_comer(5, 3) == beside("queue q", "7 CPU cores", "6 CPU cores")


def test_quota_of_a_shrunk_job_is_freed_as_that_of_a_stopped_one():
    at = [HERE, replica(gpus=(1,))]
    world = in_queue(victim(at=at, replicas=(1, 2)), comer(5), limit=2)

    found = judge(world, placement("v", HERE), placement("c", ELSEWHERE))

    assert found == beside("queue q", "3 GPUs", "2 GPUs")


def test_cores_of_a_job_that_grows_count_once():
    old = replica(gpus=(1,), cpus=12)
    grows = job("c", gpus=1, cpus=12, replicas=(1, 2), at=[old])
    world = snapshot(nodes=[node(cpus=32)], jobs=[victim(cpus=8, at=[replica(gpus=(0,), cpus=8)]), grows])

    assert judge(world, placement("c", old, replica(gpus=(2,), cpus=12))) == ()


def test_quota_of_a_job_that_moves_is_not_freed():
    world = in_queue(victim(), job("m", gpus=1, priority=9, at=[replica(gpus=(1,))]), comer(0), limit=2)
    moved = placement("m", replica("n1", gpus=(1,)))

    found = judge(world, moved, placement("c", ELSEWHERE), policy=rules(migrate=True))

    assert found == beside("queue q", "3 GPUs", "2 GPUs")


def mover(priority, old, **more):
    return job("m", gpus=1, priority=priority, at=[old], **more)


def test_what_a_job_that_may_follow_leaves_when_it_moves_is_not_for_those_that_may_not():
    """Had the victim stayed, it would not have moved: its old place on the node stays taken."""
    old, new = replica(gpus=(1,), cpus=10), replica("n1", gpus=(1,), cpus=10)

    def judge_mover(priority):
        stopped = victim(cpus=10, at=[replica(gpus=(0,), cpus=10)])
        jobs = [stopped, mover(priority, old, cpus=10), comer(0, cpus=13)]
        world = snapshot(nodes=[node(cpus=32), node("n1", cpus=32)], jobs=jobs)
        comes = placement("c", replica(gpus=(2,), cpus=13))
        return judge(world, comes, placement("m", new), policy=rules(migrate=True))

    assert judge_mover(0) == ()
    assert judge_mover(6) == beside("node n0", "33 CPU cores", "32 CPU cores")


def test_quota_of_a_model_that_a_job_leaves_when_it_moves_is_not_for_those_that_may_not_follow():
    nodes = [node(), node("n1", model="A100-80GB")]

    def judge_mover(priority):
        jobs = [victim(), mover(priority, replica(gpus=(1,))), comer(0)]
        world = snapshot(nodes=nodes, jobs=jobs, queues=[queue("q", **{MODEL: 2})])
        moved, comes = placement("m", replica("n1", gpus=(1,))), placement("c", replica(gpus=(2,)))
        return judge(world, moved, comes, policy=rules(migrate=True))

    assert judge_mover(0) == ()
    assert judge_mover(6) == beside(f"queue q on {MODEL}", "3 GPUs", "2 GPUs")


def test_quota_of_a_model_that_a_job_moves_to_is_not_for_those_that_may_not_follow():
    nodes = [node(), node("n1", model="A100-80GB")]
    for priority in (0, 6):
        jobs = [victim(), mover(priority, replica("n1", gpus=(0,)))]
        world = snapshot(nodes=nodes, jobs=jobs, queues=[queue("q", **{MODEL: 1})])

        found = judge(world, placement("m", replica(gpus=(1,))), policy=rules(migrate=True))

        assert found == (() if priority else beside(f"queue q on {MODEL}", "2 GPUs", "1 GPU"))


RACK = {"region": "eu", "zone": "a", "rack": "r1"}


def on_rack(*jobs, watts):
    nodes = [node(name, watts=700, **RACK) for name in ("n0", "n1")] + [node("n2", watts=700)]
    return snapshot(nodes=nodes, rack_power=[RACK | {"watts": watts}], jobs=jobs)


def test_power_that_a_job_leaves_when_it_moves_is_not_for_those_that_may_not_follow():
    def judge_mover(priority):
        world = on_rack(victim(), mover(priority, replica(gpus=(1,))), comer(0), watts=1400)
        moved = placement("m", replica("n2", gpus=(1,)))
        return judge(world, moved, placement("c", ELSEWHERE), policy=rules(migrate=True))

    assert judge_mover(0) == ()
    assert judge_mover(6) == beside("rack r1", "2100 W", "1400 W")


def test_power_that_a_job_draws_that_stays_is_not_there_for_others():
    stays = job("s", gpus=1, at=[replica(gpus=(3,))])
    world = on_rack(victim(), stays, comer(0), watts=1400)

    found = judge(world, stays.placement, placement("c", ELSEWHERE))

    assert found == beside("rack r1", "2100 W", "1400 W")


def test_power_of_a_rack_that_was_free_beside_a_stopped_job_is_for_any():
    world = on_rack(victim(), comer(0), job("d", gpus=1, priority=6), watts=1400)

    assert judge(world, placement("c", ELSEWHERE), placement("d", replica("n1", gpus=(1,)))) == ()


def test_power_that_a_stopped_job_frees_is_for_jobs_that_outrank_it():
    world = on_rack(victim(), comer(5), job("d", gpus=1, priority=6), watts=700)

    assert judge(world, placement("c", ELSEWHERE)) == beside("rack r1", "1400 W", "700 W")
    assert judge(world, placement("d", ELSEWHERE)) == ()


# --- reclaiming --------------------------------------------------------------------------------------------


def judge_reclaim(*queues, at="a", of="b", gpus=1, held=(), policy=None, **more):
    """A job of queue `at` in place of one of `of` of higher priority; others run in the queues `held`."""
    others = [
        job(f"o{index}", gpus=1, queue=name, at=[replica("n1", gpus=(index,))])
        for index, name in enumerate(held)
    ]
    jobs = [victim(queue=of), job("c", gpus=gpus, priority=0, queue=at, **more), *others]
    comes = placement("c", replica(gpus=range(gpus)))
    found = judge(
        snapshot(jobs=jobs, queues=queues), comes, *(one.placement for one in others), policy=policy
    )
    return tuple(each for each in found if each.rule is Rule.PREEMPTION)


def test_a_queue_below_what_it_is_entitled_to_takes_it_back_from_borrowers():
    parent = {"parent": "root"}
    for owed in ({"nominal": 1}, {"nominal": 0, "borrowing": 8, "guarantee": 1}):
        queues = [queue("root"), queue("a", **owed, **parent), queue("b", nominal=0, **parent)]

        assert judge_reclaim(*queues) == (), owed


def test_a_queue_without_any_quota_borrows_all_it_holds():
    assert judge_reclaim(queue("a", nominal=1), queue("b")) == ()


def test_a_queue_within_its_own_quota_lends_nothing():
    assert judge_reclaim(queue("a", nominal=1), queue("b", nominal=1)) == wrong(0)
    assert judge_reclaim(queue("a", nominal=1), queue("b", nominal=1), held="b") == ()


def test_a_queue_within_its_guarantee_lends_nothing():
    assert judge_reclaim(queue("a", nominal=1), queue("b", nominal=0, guarantee=1)) == wrong(0)


def test_a_job_that_its_queue_is_not_entitled_to_takes_nothing_back():
    assert judge_reclaim(queue("a"), queue("b")) == wrong(0)
    assert judge_reclaim(queue("a", nominal=1), queue("b"), gpus=2) == wrong(0)
    assert judge_reclaim(queue("a", nominal=1), queue("b"), held="a") == wrong(0)
    assert judge_reclaim(queue("a", nominal=2), queue("b"), held="a") == ()


def test_of_an_elastic_job_the_fewest_replicas_count():
    at = {"replicas": (1, 4)}

    assert judge_reclaim(queue("a", nominal=1), queue("b"), **at) == ()


def test_a_job_without_gpus_takes_nothing_back():
    at = replica(gpus=(0,), cpus=32)
    jobs = [victim(queue="b", cpus=32, at=[at]), job("c", cpus=1, queue="a")]
    world = snapshot(nodes=[node(cpus=32)], jobs=jobs, queues=[queue("a", nominal=1), queue("b")])

    assert judge(world, placement("c", replica(cpus=1))) == beside("node n0", "33 CPU cores", "32 CPU cores")


def test_a_knob_leaves_only_guarantees_to_be_taken_back():
    off = rules(reclaim=False)

    assert judge_reclaim(queue("a", nominal=1), queue("b"), policy=off) == wrong(0)
    assert judge_reclaim(queue("a", nominal=1, guarantee=1), queue("b"), policy=off) == ()


def test_queues_below_count_with_a_queue():
    queues = [queue("x", nominal=1), queue("a", parent="x"), queue("a2", parent="x"), queue("b")]

    assert judge_reclaim(*queues) == ()
    assert judge_reclaim(*queues, held=["a2"]) == wrong(0)


def test_a_queue_below_a_parent_within_its_quota_lends_nothing_to_others():
    queues = [queue("a", nominal=1), queue("x", nominal=1), queue("b", parent="x")]

    assert judge_reclaim(*queues) == wrong(0)
    assert judge_reclaim(*queues, held="b") == ()


def test_within_a_parent_only_its_children_count():
    queues = [queue("x", nominal=4), queue("a", parent="x", nominal=1), queue("b", parent="x")]

    assert judge_reclaim(*queues) == ()
    assert judge_reclaim(*queues, of="a", at="b") == wrong(0)


def test_what_a_parent_is_entitled_to_is_nothing_that_one_child_takes_from_another():
    queues = [queue("x", nominal=4), queue("a", parent="x"), queue("b", parent="x")]

    assert judge_reclaim(*queues) == wrong(0)


def test_jobs_directly_in_a_parent_have_what_it_has_itself():
    queues = [queue("x", nominal=1), queue("a", parent="x", nominal=1)]

    assert judge_reclaim(*queues, of="x") == wrong(0)
    assert judge_reclaim(*queues, of="x", held="x") == ()
    assert judge_reclaim(*queues, of="a", at="x", held="a") == ()
    assert judge_reclaim(*queues, of="a", at="x") == wrong(0)


def test_the_quota_of_the_gpu_model_in_question_counts_too():
    h100, other = {MODEL: 1}, {"A100-80GB": 1}

    assert judge_reclaim(queue("a", **h100), queue("b")) == ()
    assert judge_reclaim(queue("a", **other), queue("b")) == wrong(0)
    assert judge_reclaim(queue("a", **h100), queue("b", **h100)) == wrong(0)
    assert judge_reclaim(queue("a", **h100), queue("b", nominal=1)) == wrong(0)


def test_what_is_held_in_the_snapshot_counts_and_not_what_will_be():
    queues = [queue("a", nominal=1), queue("b", nominal=1)]
    world = snapshot(
        jobs=[victim(queue="b"), comer(0, queue="a"), job("x", gpus=1, queue="b")], queues=queues
    )

    found = judge(world, placement("c", HERE), placement("x", replica("n1", gpus=(0,))))

    assert found == (*wrong(0), *beside("queue b", "2 GPUs", "1 GPU"))


def test_a_borrower_beside_a_job_that_borrows_nothing_changes_nothing():
    queues = [queue("a", nominal=1), queue("b"), queue("d", nominal=1)]
    firm = victim("w", priority=2, at=[replica(gpus=(1,))], queue="d")
    world = snapshot(jobs=[victim(queue="b"), firm, comer(2, queue="a")], queues=queues)

    assert judge(world, placement("c", HERE)) == ()
    assert judge(world, placement("c", replica(gpus=(1,)))) == wrong(2, "w", of=2, least=3)


def test_what_two_borrowers_free_is_not_for_a_job_that_may_follow_neither():
    """Teams take back within their departments: one of each does, and a third job comes for the cores."""
    queues = [
        each
        for top in ("x", "y")
        for each in (queue(top), queue(f"{top}1", parent=top, nominal=1), queue(f"{top}2", parent=top))
    ]
    running = [
        victim(f"v{top}", queue=f"{top}2", cpus=1, at=[replica(gpus=(index,), cpus=1)])
        for index, top in enumerate("xy")
    ]
    back = [job(f"c{top}", gpus=1, cpus=0, queue=f"{top}1") for top in "xy"]
    third = job("d", gpus=1, cpus=1, queue="x2")
    world = snapshot(nodes=[node(cpus=2)], jobs=[*running, *back, third], queues=queues)
    taken_back = [placement(f"c{top}", replica(gpus=(index,), cpus=0)) for index, top in enumerate("xy")]

    assert judge(world, *taken_back) == ()
    found = judge(world, *taken_back, placement("d", replica(gpus=(2,), cpus=1)))
    assert [(each.rule, each.subject) for each in found] == [(Rule.PREEMPTION, "node n0")]


def test_a_job_in_its_turn_is_not_stopped_for_the_priority_of_a_queue_outside_if_its_own_may_reclaim():
    """It has run for ten times its recovery: more than the 7 of three stops, less than the 15 of four."""

    def allowed(preemptions, *, nominal=8, of="b", parent=None, **disruption):
        queues = [
            queue("a", nominal=nominal, parent=parent),
            queue("b", parent=parent),
            queue("c", parent="a"),
        ]
        queues += [queue(parent)] if parent else []
        running = victim(queue="a", preemptions=preemptions)
        world = snapshot(jobs=[running, comer(6, queue=of)], queues=queues)
        return judge(world, placement("c", HERE), policy=rules(**disruption)) == ()

    assert allowed(0)
    assert allowed(3)
    assert not allowed(4)
    assert not allowed(4, parent="root")
    assert allowed(1, checkpoint=3300)
    assert not allowed(1, checkpoint=3301)
    assert allowed(4, of="a")
    assert allowed(4, nominal=0)
    assert allowed(4, nominal=None)
    assert allowed(4, reclaim=False)


def test_a_turn_within_a_parent_counts_for_queues_outside_of_it():
    queues = [queue("a", nominal=8), queue("x", parent="a"), queue("y", parent="a"), queue("b")]

    def allowed(of):
        jobs = [victim(queue="x", preemptions=9), comer(6, queue=of)]
        return judge(snapshot(jobs=jobs, queues=queues), placement("c", HERE)) == ()

    assert allowed("y")
    assert not allowed("b")


def test_a_job_in_its_turn_is_stopped_by_a_queue_that_reclaims():
    queues = [queue("a", nominal=0), queue("b", nominal=1)]
    jobs = [victim(queue="a", preemptions=9), comer(0, queue="b")]

    assert judge(snapshot(jobs=jobs, queues=queues), placement("c", HERE)) == ()


def test_a_job_without_gpus_has_no_turn_as_it_reclaims_nothing():
    queues = [queue("a", nominal=8), queue("b")]
    here = replica(cpus=60)
    running = job("v", cpus=60, preemptions=9, queue="a", at=(here,))
    jobs = [running, job("c", cpus=60, priority=6, queue="b")]

    assert judge(snapshot(jobs=jobs, queues=queues), placement("c", here)) == ()
