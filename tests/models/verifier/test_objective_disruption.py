"""What is done to running jobs has its price: preemption, migration, resize, drain."""

from datetime import timedelta

from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Disruption, Prices
from tests.support.builders.build import NOW, by_value, job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import worth

HERE, THERE = replica("n0", gpus=(0,)), replica("n1", gpus=(0,))


def policy(**prices):
    """Six minutes are lost beside the work: one of checkpoint and five of restart."""
    return by_value(disruption=Disruption(migrate=True), prices=Prices(**prices))


def runs(*replicas, name="r", gpus=1, saved=None, **more):
    """A job that runs for an hour, with a checkpoint so many minutes ago."""
    job_ = job(name, gpus=gpus, at=replicas or [HERE], **more)
    if saved is None:
        return job_
    running = Running(
        started_at=NOW - timedelta(hours=1),
        last_checkpoint_at=NOW - timedelta(minutes=saved),
        replicas=job_.running.replicas,
    )
    return job_.model_copy(update={"running": running})


def stopped(*jobs, **prices):
    return worth(snapshot(jobs=jobs), policy=policy(**prices)).get("preemption", 0)


# --- preemption --------------------------------------------------------------------------------------------


def test_a_stopped_job_loses_its_work_and_the_time_to_stop_and_come_back():
    # 66 minutes of one GPU at 100 points an hour
    assert stopped(runs()) == -110


def test_work_before_the_last_checkpoint_is_safe():
    assert stopped(runs(saved=24)) == -50
    assert stopped(runs(saved=0)) == -10


def test_more_gpus_lose_more():
    assert stopped(runs(replica("n0", gpus=range(8)), gpus=8)) == -880
    assert stopped(runs(HERE, THERE, replicas=2)) == -220


def test_a_job_without_gpus_counts_for_the_smallest_size():
    assert stopped(job("r", cpus=1, at=[replica(cpus=1)])) == -11


def test_the_job_may_say_how_long_it_takes_to_stop_and_come_back():
    assert stopped(runs(saved=0, checkpoint_duration="20m", restart_duration="40m")) == -100


def test_the_policy_says_what_a_gpu_hour_is_worth():
    assert stopped(runs(saved=24), disruption=30) == -15
    assert stopped(runs(saved=24), disruption=0) == 0


def test_every_stopped_job_counts():
    assert stopped(runs(), runs(THERE, name="s", saved=24)) == -160


def test_a_job_that_stays_loses_nothing():
    assert worth(snapshot(jobs=[runs()]), runs().placement, policy=policy()) == {"completion": 0}


# --- migration ---------------------------------------------------------------------------------------------


def test_a_moved_job_loses_as_much_and_pays_for_the_move():
    world = snapshot(jobs=[runs(saved=24)])

    assert worth(world, placement("r", THERE), policy=policy()) == {"completion": 0, "migration": -60}
    assert worth(world, placement("r", THERE), policy=policy(migration=3)) == {
        "completion": 0,
        "migration": -53,
    }


def test_every_moved_job_counts():
    jobs = [runs(saved=24), runs(replica(gpus=(1,)), name="s", saved=0)]
    after = [placement("r", THERE), placement("s", replica("n1", gpus=(1,)))]

    assert worth(snapshot(jobs=jobs), *after, policy=policy())["migration"] == -80


# --- resize ------------------------------------------------------------------------------------------------


def test_a_job_that_shrinks_or_grows_loses_what_a_stopped_one_does_and_pays_for_the_resize():
    places = [replica(gpus=(index,)) for index in range(4)]
    world = snapshot(jobs=[runs(*places[:2], replicas=(1, 4), saved=24)])

    # 30 minutes of the two GPUs that it had, whatever the number of replicas after that
    assert worth(world, placement("r", places[0]), policy=policy()) == {"completion": -100, "resize": -110}
    assert worth(world, placement("r", *places), policy=policy(resize=7)) == {
        "completion": 200,
        "resize": -107,
    }
    assert worth(world, placement("r", *places), policy=policy(disruption=0))["resize"] == -10


def test_every_resized_job_counts():
    def elastic(name, *indices):
        return runs(*(replica(gpus=(index,)) for index in indices), name=name, replicas=(1, 2), saved=24)

    jobs = [elastic("r", 0, 1), elastic("s", 2)]
    after = [placement("r", HERE), placement("s", replica(gpus=(2,)), replica(gpus=(1,)))]

    assert worth(snapshot(jobs=jobs), *after, policy=policy())["resize"] == -110 - 60


# --- drain -------------------------------------------------------------------------------------------------


def drained(*after, at=(HERE,), **more):
    """What is earned if a job that runs there is afterwards there; n0 and n2 are to be drained."""
    nodes = [node("n0", drain=True), node("n1"), node("n2", drain=True), node("n3")]
    job_ = runs(*at, replicas=(1, 4), **more)
    placements = [placement("r", *after)] if after else []
    return worth(snapshot(nodes=nodes, jobs=[job_]), *placements, policy=policy(drain=500)).get("drain", 0)


def test_a_job_that_leaves_the_nodes_to_be_drained_earns_the_price_of_one():
    assert drained(THERE) == 500
    assert drained() == 500


def test_a_job_with_a_replica_left_on_such_a_node_earns_nothing():
    on_n2 = replica("n2", gpus=(0,))

    assert drained(HERE) == 0
    assert drained(on_n2) == 0
    assert drained(THERE, on_n2, at=(HERE, THERE)) == 0
    assert drained(HERE, at=(HERE, on_n2)) == 0


def test_a_job_that_shrinks_away_from_such_a_node_has_left_it():
    assert drained(THERE, at=(HERE, THERE)) == 500


def test_a_job_that_was_on_none_earns_nothing():
    assert drained(replica("n3", gpus=(0,)), at=(THERE,)) == 0
    assert drained(at=(THERE,)) == 0


def test_every_job_that_leaves_counts():
    jobs = [runs(), runs(replica(gpus=(1,)), name="s")]
    world = snapshot(nodes=[node("n0", drain=True)], jobs=jobs)

    assert worth(world, policy=policy(drain=500))["drain"] == 1000
