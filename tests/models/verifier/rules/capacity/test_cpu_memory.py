from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import asking, broken, holding, judge

SMALL = node("n0", cpus=8, memory_gib=16, disk_mib=1000, resources={"rdma/hca": 2})


def judge_on_small(running, waiting, *placements):
    world = snapshot(nodes=[SMALL, node("n1")], jobs=[*running, *waiting])
    return judge(world, *(job.placement for job in running), *placements)


def wrong(found, allowed):
    return broken(Rule.CPU_MEMORY, "node n0", found, allowed)


def test_a_node_may_be_filled():
    full = asking(job(cpus=8, memory_gib=16), disk_mib=1000, resources={"rdma/hca": 2})
    held = holding(replica(cpus=8, memory_gib=16), disk_mib=1000, resources={"rdma/hca": 2})

    assert judge_on_small([], [full], placement("a", held)) == ()


def test_a_thousandth_of_a_core_too_many_is_too_many():
    assert judge_on_small([], [job(cpus=8.001)], placement("a", replica(cpus=8.001))) == wrong(
        "8.001 CPU cores", "8 CPU cores"
    )


def test_memory_disk_and_countable_resources_have_limits_too():
    memory = asking(job(), memory_mib=16385)
    disk = asking(job(), disk_mib=1001)
    rdma = asking(job(), resources={"rdma/hca": 3})
    other = asking(job(), resources={"fpga": 1})

    assert judge_on_small([], [memory], placement("a", holding(replica(), memory_mib=16385))) == wrong(
        "16385 MiB of memory", "16384 MiB of memory"
    )
    assert judge_on_small([], [disk], placement("a", holding(replica(), disk_mib=1001))) == wrong(
        "1001 MiB of disk", "1000 MiB of disk"
    )
    assert judge_on_small([], [rdma], placement("a", holding(replica(), resources={"rdma/hca": 3}))) == wrong(
        "3 rdma/hca", "2 rdma/hca"
    )
    assert judge_on_small([], [other], placement("a", holding(replica(), resources={"fpga": 1}))) == wrong(
        "1 fpga", "0 fpga"
    )


def test_running_and_started_jobs_and_all_replicas_count_together():
    runs = job("r", cpus=4, at=[replica(cpus=4)])
    starts = job("a", cpus=2, replicas=2)

    assert judge_on_small([runs], [starts], placement("a", replica(cpus=2), replica(cpus=2))) == ()
    assert judge_on_small(
        [runs], [job("a", cpus=3, replicas=2)], placement("a", replica(cpus=3), replica(cpus=3))
    ) == wrong("10 CPU cores", "8 CPU cores")


def test_each_node_counts_alone():
    starts = job("a", cpus=8, replicas=2)

    assert judge_on_small([], [starts], placement("a", replica("n0", cpus=8), replica("n1", cpus=8))) == ()


def test_an_overcommitted_node_keeps_its_running_jobs_and_takes_nothing_more():
    runs = job("r", cpus=10, at=[replica(cpus=10)])

    assert judge_on_small([runs], []) == ()
    assert judge_on_small([runs], [job(memory_gib=1)], placement("a", replica(memory_gib=1))) == ()
    assert judge_on_small([runs], [job(cpus=0.001)], placement("a", replica(cpus=0.001))) == wrong(
        "10.001 CPU cores", "10 CPU cores"
    )


def test_a_resource_named_like_ours_is_its_own():
    named = node("n0", cpus=1, resources={"cpu_milli": 5000})
    wants = asking(job(cpus=1), resources={"cpu_milli": 5000})
    held = holding(replica(cpus=1), resources={"cpu_milli": 5000})

    assert judge(snapshot(nodes=[named], jobs=[wants]), placement("a", held)) == ()


# --- overcommitted classes ---------------------------------------------------------------------------------

TWICE = {"burstable": {"cpus": 2, "memory": 4}, "best_effort": {"cpus": 3}, "guaranteed": {"cpus": 9}}


def judge_overcommitted(*jobs, running=()):
    """All jobs start on the small node."""
    world = snapshot(nodes=[SMALL], jobs=[*running, *jobs], overcommit=TWICE)
    held = [
        placement(
            each.name, replica(cpus=each.request.cpu_milli / 1000, memory_gib=each.request.memory_mib // 1024)
        )
        for each in jobs
    ]
    return judge(world, *(each.placement for each in running), *held)


def test_cpu_and_memory_of_an_overcommitted_class_count_for_less():
    assert judge_overcommitted(job(qos="burstable", cpus=16, memory_gib=64)) == ()
    assert judge_overcommitted(job(qos="burstable", cpus=16.002)) == wrong("8.001 CPU cores", "8 CPU cores")
    assert judge_overcommitted(job(qos="burstable", memory_gib=65)) == wrong(
        "16640 MiB of memory", "16384 MiB of memory"
    )


def test_each_job_is_rounded_up():
    # A third of 8.001 cores is 2.667, and three times that is more than 8.
    thirds = [job(name, qos="best_effort", cpus=8) for name in "abc"]
    more = [job(name, qos="best_effort", cpus=7.999) for name in "abc"]

    assert judge_overcommitted(*more) == wrong("8.001 CPU cores", "8 CPU cores")
    assert judge_overcommitted(*thirds[:2]) == ()


def test_each_class_has_its_own_ratio_and_guaranteed_jobs_none():
    classes = [
        job("a", qos="guaranteed", cpus=4),
        job("b", qos="burstable", cpus=4),
        job("c", qos="best_effort", cpus=6),
    ]

    assert judge_overcommitted(*classes) == ()
    assert judge_overcommitted(job(qos="guaranteed", cpus=8.001)) == wrong("8.001 CPU cores", "8 CPU cores")
    assert judge_overcommitted(job(qos="best_effort", memory_gib=17)) == wrong(
        "17408 MiB of memory", "16384 MiB of memory"
    )


def test_running_jobs_count_for_less_too():
    runs = job("r", qos="burstable", cpus=12, at=[replica(cpus=12)])

    assert judge_overcommitted(job(cpus=2), running=[runs]) == ()
    assert judge_overcommitted(job(cpus=2.001), running=[runs]) == wrong("8.001 CPU cores", "8 CPU cores")


def test_disk_and_other_resources_are_never_overcommitted():
    wants = asking(job(qos="burstable"), disk_mib=1001, resources={"rdma/hca": 3})
    held = holding(replica(), disk_mib=1001, resources={"rdma/hca": 3})

    found = judge(snapshot(nodes=[SMALL], jobs=[wants], overcommit=TWICE), placement("a", held))

    assert found == (*wrong("1001 MiB of disk", "1000 MiB of disk"), *wrong("3 rdma/hca", "2 rdma/hca"))


def test_what_stopped_jobs_held_beyond_the_node_is_not_taken_again():
    runs = [job(name, cpus=5, at=[replica(cpus=5)]) for name in ("r0", "r1")]
    starts = [job("a", cpus=5, priority=1), job("b", cpus=3, priority=1)]
    world = snapshot(nodes=[SMALL], jobs=[*runs, *starts])

    assert judge(world, runs[0].placement, placement("b", replica(cpus=3))) == ()
    assert judge(world, runs[0].placement, placement("a", replica(cpus=5))) == wrong(
        "10 CPU cores", "8 CPU cores"
    )
