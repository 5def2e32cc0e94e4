from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge


def share(milli, *, gpu=0, node="n0"):
    return replica(node, gpus=(gpu,), milli=milli)


def start(*shares, running=()):
    """Jobs a, b, … start with one share each beside jobs that run."""
    names = "abcdefgh"[: len(shares)]
    runs = [job(f"r{index}", milli=500, at=[held]) for index, held in enumerate(running)]
    waiting = [job(name, milli=held.gpus[0].milli) for name, held in zip(names, shares, strict=True)]
    started = [placement(name, held) for name, held in zip(names, shares, strict=True)]
    return judge(snapshot(jobs=[*runs, *waiting]), *(job.placement for job in runs), *started)


def test_shares_may_fill_a_gpu():
    assert start(share(500), share(300), share(200)) == ()


def test_shares_may_not_exceed_a_gpu_by_a_thousandth():
    assert start(share(500), share(501)) == broken(
        Rule.FRACTIONAL_GPU, "node n0 gpu 0", "1.001 GPUs: a, b", "1 GPU"
    )


def test_each_gpu_is_counted_alone():
    assert start(share(700), share(700, gpu=1), share(700, node="n1")) == ()


def test_running_shares_count():
    assert start(share(500), running=[share(500)]) == ()
    assert start(share(600), running=[share(500)]) == broken(
        Rule.FRACTIONAL_GPU, "node n0 gpu 0", "1.1 GPUs: a, r0", "1 GPU"
    )


def test_two_replicas_of_one_job_count_twice():
    world = snapshot(jobs=[job("a", milli=600, replicas=2)])

    found = judge(world, placement("a", share(600), share(600)))

    assert found == broken(Rule.FRACTIONAL_GPU, "node n0 gpu 0", "1.2 GPUs: a, a", "1 GPU")


def test_what_running_jobs_already_do_is_not_the_plans_fault():
    assert start(running=[share(600), share(600)]) == ()


def test_no_job_joins_a_gpu_that_running_jobs_overfill():
    assert start(share(100), running=[share(600), share(600)]) == broken(
        Rule.FRACTIONAL_GPU, "node n0 gpu 0", "1.3 GPUs: a, r0, r1", "1 GPU"
    )
