from gpuplan.models.cluster import Gpu, MigInstance, NodeGpus
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.queue import Quota
from tests.support.builders.build import job, node, placement, queue, replica, snapshot
from tests.support.harness.verify_helpers import apart_from_damage, asking, broken, judge, sliced

NODES = (node("n0", model="H100-80GB"), node("n1", model="A100-80GB"))


def judge_use(queues, *, running=None, **gpus):
    """Verdict if each queue named starts a job of so many GPUs beside running ones of so many."""
    jobs, placements, free = [], [], iter(range(64))
    for name, count in (running or {}).items():
        held = replica(gpus=tuple(next(free) for _ in range(count)))
        jobs.append(job(f"r-{name}", gpus=count, queue=name, at=[held]))
        placements.append(jobs[-1].placement)
    for name, count in gpus.items():
        jobs.append(job(f"s-{name}", gpus=count, queue=name))
        placements.append(placement(f"s-{name}", replica(gpus=tuple(next(free) for _ in range(count)))))
    return judge(snapshot(nodes=[node(gpus=64)], jobs=jobs, queues=queues), *placements)


def wrong(subject, found, allowed):
    return broken(Rule.QUOTA, f"queue {subject}", found, allowed)


def test_a_queue_may_use_its_quota():
    assert judge_use([queue("q", nominal=4)], q=4) == ()


def test_a_queue_may_not_use_more_than_its_quota():
    assert judge_use([queue("q", nominal=4)], q=5) == wrong("q", "5 GPUs", "4 GPUs")


def test_a_queue_without_a_quota_has_no_limit():
    assert judge_use([queue("q")], q=40) == ()


def test_a_thousandth_too_much_is_too_much():
    world = snapshot(jobs=[job("a", milli=501, replicas=2)], queues=[queue("q", nominal=1.001)])

    found = judge(world, placement("a", replica(gpus=(0,), milli=501), replica(gpus=(1,), milli=501)))

    assert found == wrong("q", "1.002 GPUs", "1.001 GPUs")


def test_mig_instances_count_by_their_compute_slices():
    layout = tuple(MigInstance(profile="3g.40gb", start=start) for start in (0, 4))
    gpus = NodeGpus(model="H100-80GB", count=1, memory_mib=81559, details=(Gpu(index=0, mig=layout),))
    sevenths = node("n0").model_copy(update={"gpus": gpus})
    wants = asking(job(replicas=2), mig={"3g.40gb": 1})
    held = [sliced(replica(), (0, "3g.40gb", start)) for start in (0, 4)]

    def judge_with(nominal):
        world = snapshot(nodes=[sevenths], jobs=[wants], queues=[queue("q", nominal=nominal)])
        return judge(world, placement("a", *held))

    assert judge_with(0.856) == ()
    assert judge_with(0.855) == wrong("q", "0.856 GPUs", "0.855 GPUs")


def test_a_quota_of_one_model_counts_that_model_only():
    limited = queue("q", **{"A100-80GB": 1})
    world = snapshot(nodes=NODES, jobs=[job("a", gpus=2), job("b", gpus=2)], queues=[limited])

    assert judge(world, placement("a", replica("n0", gpus=(0, 1)))) == ()
    assert judge(world, placement("b", replica("n1", gpus=(0, 1)))) == wrong(
        "q on A100-80GB", "2 GPUs", "1 GPU"
    )


def test_the_quota_over_all_models_counts_them_all():
    world = snapshot(
        nodes=NODES,
        jobs=[job("a", gpus=2), job("b", gpus=2)],
        queues=[queue("q", nominal=3, **{"A100-80GB": 9})],
    )

    found = judge(
        world, placement("a", replica("n0", gpus=(0, 1))), placement("b", replica("n1", gpus=(0, 1)))
    )

    assert found == wrong("q", "4 GPUs", "3 GPUs")


def test_a_child_borrows_what_its_siblings_and_parent_leave():
    tree = [
        queue("root", nominal=2),
        queue("a", parent="root", nominal=4),
        queue("b", parent="root", nominal=4),
    ]

    assert judge_use(tree, a=10) == ()
    assert judge_use(tree, a=7, b=3) == ()
    assert judge_use(tree, a=7, b=4) == wrong("root", "11 GPUs", "10 GPUs")


def test_a_borrowing_limit_bounds_what_a_child_borrows():
    tree = [queue("root", nominal=9), queue("a", parent="root", nominal=4, borrowing=1)]

    assert judge_use(tree, a=5) == ()
    assert judge_use(tree, a=6) == wrong("a", "6 GPUs", "5 GPUs")


def test_a_root_has_no_queue_to_borrow_from():
    assert judge_use([queue("q", nominal=4, borrowing=3)], q=5) == wrong("q", "5 GPUs", "4 GPUs")


def test_a_lending_limit_keeps_the_rest_for_the_child():
    tree = [
        queue("root", nominal=0),
        queue("a", parent="root", nominal=4, lending=1),
        queue("b", parent="root", nominal=4),
    ]

    # The subtree of root is 1 of a and 4 of b; the first 3 GPUs that a uses are its own affair.
    assert judge_use(tree, b=5) == ()
    assert judge_use(tree, b=6) == wrong("root", "6 GPUs", "5 GPUs")
    assert judge_use(tree, a=4, b=4) == ()
    assert judge_use(tree, a=3, b=5) == ()
    assert judge_use(tree, a=4, b=5) == wrong("root", "6 GPUs", "5 GPUs")


def test_limits_hold_at_every_level():
    tree = [
        queue("root", nominal=1),
        queue("lab", parent="root", nominal=2, borrowing=0, lending=1),
        queue("a", parent="lab", nominal=4, lending=2),
        queue("b", parent="root", nominal=3),
    ]

    # subtree(a) = 4, keeps 2; subtree(lab) = 2 + 2 = 4, keeps 3; subtree(root) = 1 + 1 + 3 = 5.
    assert judge_use(tree, a=6) == ()
    assert judge_use(tree, a=7) == wrong("lab", "5 GPUs", "4 GPUs")
    assert judge_use(tree, a=6, b=4) == ()
    assert judge_use(tree, a=6, b=5) == wrong("root", "6 GPUs", "5 GPUs")


def test_a_child_without_a_quota_counts_at_its_parent_and_adds_nothing():
    tree = [queue("root", nominal=2), queue("a", parent="root"), queue("b", parent="root", nominal=1)]

    assert judge_use(tree, a=3) == ()
    assert judge_use(tree, a=4) == wrong("root", "4 GPUs", "3 GPUs")


def test_a_parent_without_a_quota_shares_what_its_children_have():
    tree = [queue("root"), queue("a", parent="root", nominal=2), queue("b", parent="root", nominal=3)]

    assert judge_use(tree, a=5) == ()
    assert judge_use(tree, a=3, b=3) == wrong("root", "6 GPUs", "5 GPUs")


def test_a_parent_without_a_quota_over_a_child_without_one_has_no_limit():
    tree = [queue("root"), queue("a", parent="root", nominal=2), queue("b", parent="root")]

    assert judge_use(tree, a=30, b=30) == ()


def test_running_jobs_count():
    tree = [queue("q", nominal=4)]

    assert judge_use(tree, running={"q": 3}, q=1) == ()
    assert judge_use(tree, running={"q": 3}, q=2) == wrong("q", "5 GPUs", "4 GPUs")


def test_what_a_stopped_job_held_counts_no_longer():
    jobs = [job("a", gpus=3, at=[replica(gpus=(0, 1, 2))]), job("b", gpus=2, priority=9)]
    world = snapshot(jobs=jobs, queues=[queue(nominal=3)])
    arrives = placement("b", replica(gpus=(3, 4)))

    assert judge(world, arrives) == ()
    assert judge(world, jobs[0].placement, arrives) == wrong("q", "5 GPUs", "3 GPUs")


def test_what_a_moved_job_held_counts_no_longer():
    policy = Policy(disruption=Disruption(migrate=True))
    jobs = [job("a", gpus=3, at=[replica(gpus=(0, 1, 2))]), job("b", gpus=2)]
    world = snapshot(nodes=NODES, jobs=jobs, queues=[queue(**{"H100-80GB": 3})])
    arrives = placement("b", replica(gpus=(3, 4)))

    assert judge(world, placement("a", replica("n1", gpus=(0, 1, 2))), arrives, policy=policy) == ()
    assert judge(world, jobs[0].placement, arrives, policy=policy) == wrong(
        "q on H100-80GB", "5 GPUs", "3 GPUs"
    )


def test_a_queue_beyond_its_limit_may_stay_there_and_not_grow():
    tree = [
        queue("root"),
        queue("a", parent="root", nominal=2, borrowing=0),
        queue("b", parent="root", nominal=4),
    ]

    assert judge_use(tree, running={"a": 3}) == ()
    assert judge_use(tree, running={"a": 3}, b=3) == ()
    assert judge_use(tree, running={"a": 3}, a=1) == wrong("a", "4 GPUs", "3 GPUs")
    assert judge_use(tree, running={"a": 7}, b=1) == wrong("root", "8 GPUs", "7 GPUs")


def test_limits_of_one_model_follow_the_tree_too():
    model = "H100-80GB"
    tree = [
        queue("root", **{model: 1}),
        queue("a", parent="root").model_copy(
            update={"gpu_models": {model: Quota(nominal=4, lending_limit=1)}}
        ),
        queue("b", parent="root", **{model: 1}),
    ]

    # subtree(root) = 1 + 1 + 1; a keeps 3.
    assert judge_use(tree, a=5, b=1) == ()
    assert judge_use(tree, a=6, b=1) == wrong(f"root on {model}", "4 GPUs", "3 GPUs")


def test_gpus_of_a_node_that_is_gone_count_nowhere():
    runs = job("r", gpus=4, at=[replica("gone", gpus=(0, 1, 2, 3))])
    world = snapshot(jobs=[runs, job("a", gpus=1)], queues=[queue("q", nominal=1)])

    assert apart_from_damage(judge(world, runs.placement, placement("a", replica(gpus=(0,))))) == ()


def test_gpus_that_a_node_does_not_have_count_nowhere():
    world = snapshot(nodes=[node("n0", gpus=0)], jobs=[job("a", gpus=1)], queues=[queue("q", nominal=0)])

    found = judge(world, placement("a", replica(gpus=(0,))))

    assert [each.rule for each in found] == [Rule.SELECTION]


def test_a_deep_tree_is_no_problem():
    chain = [queue("q0"), *(queue(f"q{index}", parent=f"q{index - 1}") for index in range(1, 3000))]
    chain[-1] = queue("q2999", parent="q2998", nominal=1)

    assert judge_use(chain, q2999=2) != ()


def judge_work(queues, *waiting, running=()):
    """Verdict if jobs (name, queue, replicas, cores, GiB) start beside running ones; on a GPU if named g."""
    jobs, placements, free = [], [], iter(range(64))
    for name, of, count, cpus, memory_gib in (*running, *waiting):
        gpus = int(name.startswith("g"))
        held = [
            replica(gpus=tuple(next(free) for _ in range(gpus)), cpus=cpus, memory_gib=memory_gib)
            for _ in range(count)
        ]
        about = {"gpus": gpus, "cpus": cpus, "memory_gib": memory_gib, "replicas": count}
        runs = any(each[0] == name for each in running)
        jobs.append(job(name, queue=of, at=held if runs else None, **about))
        placements.append(placement(name, *held))
    return judge(snapshot(nodes=[node(gpus=64)], jobs=jobs, queues=queues), *placements)


def test_jobs_with_and_without_gpus_count_for_cpu_cores():
    limited = [queue("q", cpus=6.5)]

    assert judge_work(limited, ("a", "q", 2, 2, 0), ("g", "q", 1, 2.5, 0)) == ()
    assert judge_work(limited, ("a", "q", 2, 2, 0), ("g", "q", 1, 2.501, 0)) == wrong(
        "q", "6.501 CPU cores", "6.5 CPU cores"
    )


def test_jobs_with_and_without_gpus_count_for_memory():
    limited = [queue("q", memory="5Gi")]

    assert judge_work(limited, ("a", "q", 2, 50, 2), ("g", "q", 1, 50, 1)) == ()
    assert judge_work(limited, ("a", "q", 2, 50, 2), ("g", "q", 1, 50, 2)) == wrong(
        "q", "6144 MiB of memory", "5120 MiB of memory"
    )


def test_each_resource_has_limits_of_its_own():
    limited = [queue("q", nominal=1, cpus=4, memory="4Gi")]

    assert judge_work(limited, ("g", "q", 1, 4, 4)) == ()
    assert judge_work(limited, ("g", "q", 1, 5, 5)) == (
        *wrong("q", "5 CPU cores", "4 CPU cores"),
        *wrong("q", "5120 MiB of memory", "4096 MiB of memory"),
    )


def test_cpu_cores_are_borrowed_and_lent_as_gpus_are():
    def lending(limit, borrowing=None):
        return [
            queue("root"),
            queue("q", parent="root", cpus=(4, borrowing, None)),
            queue("other", parent="root", cpus=(4, None, limit)),
        ]

    assert judge_work(lending(None), ("a", "q", 1, 8, 0)) == ()
    assert judge_work(lending(1), ("a", "q", 1, 5, 0)) == ()
    assert judge_work(lending(1), ("a", "q", 1, 6, 0)) == wrong("root", "6 CPU cores", "5 CPU cores")
    assert judge_work(lending(1), ("a", "q", 1, 5, 0), ("b", "other", 1, 3, 0)) == ()
    assert judge_work(lending(None, 2), ("a", "q", 1, 7, 0)) == wrong("q", "7 CPU cores", "6 CPU cores")


def test_running_jobs_beyond_a_cpu_quota_stay_but_nothing_is_added():
    limited, runs = [queue("q", cpus=4)], ("r", "q", 1, 6, 0)

    assert judge_work(limited, running=[runs]) == ()
    assert judge_work(limited, ("a", "q", 1, 0, 9), running=[runs]) == ()
    assert judge_work(limited, ("a", "q", 1, 1, 0), running=[runs]) == wrong(
        "q", "7 CPU cores", "6 CPU cores"
    )


def test_running_jobs_beyond_a_quota_of_memory_stay_but_nothing_is_added():
    limited, runs = [queue("q", memory=4096)], ("r", "q", 1, 1, 6)

    assert judge_work(limited, running=[runs]) == ()
    assert judge_work(limited, ("a", "q", 1, 9, 0), running=[runs]) == ()
    assert judge_work(limited, ("a", "q", 1, 0, 1), running=[runs]) == wrong(
        "q", "7168 MiB of memory", "6144 MiB of memory"
    )
