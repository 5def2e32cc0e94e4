from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge

WAITS = job("b", gpus=1)
TAKEN = broken(Rule.GPU_CAPACITY, "node n0 gpu 3", "2 holders: a, b", "1 holder")


def runs(*replicas, name="a", **more):
    return job(name, at=replicas, **more)


def judge_beside(running, *placements, jobs=(WAITS,)):
    return judge(snapshot(jobs=[running, *jobs]), running.placement, *placements)


def test_the_gpu_beside_is_free():
    assert judge_beside(runs(replica(gpus=(3,))), placement("b", replica(gpus=(4,)))) == ()


def test_the_same_index_on_another_node_is_another_gpu():
    assert judge_beside(runs(replica(gpus=(3,))), placement("b", replica("n1", gpus=(3,)))) == ()


def test_a_gpu_that_runs_a_whole_job_is_taken():
    assert judge_beside(runs(replica(gpus=(3,))), placement("b", replica(gpus=(3,)))) == TAKEN


def test_a_gpu_of_which_a_job_holds_a_share_cannot_be_had_whole():
    shares = runs(replica(gpus=(3,), milli=1))

    assert judge_beside(shares, placement("b", replica(gpus=(3,)))) == TAKEN


def test_a_share_of_a_gpu_held_whole_cannot_be_had():
    wants_a_share = job("b", milli=100)

    found = judge_beside(
        runs(replica(gpus=(3,))), placement("b", replica(gpus=(3,), milli=100)), jobs=[wants_a_share]
    )

    assert found == TAKEN


def test_two_started_jobs_do_not_share_a_whole_gpu():
    world = snapshot(jobs=[job("a", gpus=1), WAITS])

    assert judge(world, placement("a", replica(gpus=(3,))), placement("b", replica(gpus=(3,)))) == TAKEN


def test_two_replicas_of_one_job_do_not_share_a_whole_gpu():
    world = snapshot(jobs=[job("a", gpus=1, replicas=2)])

    found = judge(world, placement("a", replica(gpus=(3,)), replica(gpus=(3,))))

    assert found == broken(Rule.GPU_CAPACITY, "node n0 gpu 3", "2 holders: a, a", "1 holder")


def test_long_lists_of_holders_are_cut_short():
    names = [f"j{index}" for index in range(6)]
    world = snapshot(jobs=[job(name, gpus=1) for name in names])
    placements = [placement(name, replica(gpus=(3,))) for name in names]

    assert judge(world, *placements[:5]) == broken(
        Rule.GPU_CAPACITY, "node n0 gpu 3", "5 holders: j0, j1, j2, j3, j4", "1 holder"
    )
    assert judge(world, *placements) == broken(
        Rule.GPU_CAPACITY, "node n0 gpu 3", "6 holders: j0, j1, j2, j3, j4 and 1 more", "1 holder"
    )


def test_each_node_counts_alone():
    other = runs(replica("n1", gpus=(3,)), name="c")
    world = snapshot(jobs=[runs(replica(gpus=(3,))), other, WAITS])

    found = judge(
        world, placement("a", replica(gpus=(3,))), other.placement, placement("b", replica("n1", gpus=(3,)))
    )

    assert found == broken(Rule.GPU_CAPACITY, "node n1 gpu 3", "2 holders: b, c", "1 holder")


def test_nor_is_it_where_a_job_starts_beside_them():
    first, second = runs(replica(gpus=(3,))), runs(replica(gpus=(3,)), name="c")
    world = snapshot(jobs=[first, second, WAITS])

    assert judge(world, first.placement, second.placement, placement("b", replica(gpus=(4,)))) == ()


def test_what_running_jobs_already_do_is_not_the_plans_fault():
    first, second = runs(replica(gpus=(3,))), runs(replica(gpus=(3,)), name="c")

    assert judge(snapshot(jobs=[first, second]), first.placement, second.placement) == ()


def test_a_placement_of_an_unknown_job_takes_its_gpu_all_the_same():
    found = judge_beside(runs(replica(gpus=(3,))), placement("ghost", replica(gpus=(3,))))

    assert broken(Rule.GPU_CAPACITY, "node n0 gpu 3", "2 holders: a, ghost", "1 holder")[0] in found
