from gpuplan.models.cluster import Gpu, MigInstance, NodeGpus
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import asking, broken, holding, judge, rules, sliced

SEVENTHS = tuple(MigInstance(profile="1g.10gb", start=start) for start in range(7))


def judge_one(job, replica, nodes=None):
    return judge(snapshot(jobs=[job], nodes=nodes), placement(job.name, replica))


def wrong(found, allowed):
    return broken(Rule.REQUEST, "job a replica 0", found, allowed)


def test_a_replica_holds_its_whole_gpus_and_the_rest():
    assert judge_one(job(gpus=2, cpus=1.5, memory_gib=3), replica(gpus=(1, 0), cpus=1.5, memory_gib=3)) == ()


def test_a_replica_holds_its_share_of_one_gpu():
    assert judge_one(job(milli=300), replica(gpus=(7,), milli=300)) == ()


def test_a_replica_holds_its_mig_instances():
    gpus = NodeGpus(model="H100-80GB", count=1, memory_mib=81559, details=(Gpu(index=0, mig=SEVENTHS),))
    nodes = [node("n0").model_copy(update={"gpus": gpus})]
    wants = asking(job(), mig={"1g.10gb": 2})

    assert judge_one(wants, sliced(replica(), (0, "1g.10gb", 3), (0, "1g.10gb", 5)), nodes) == ()
    assert judge_one(wants, sliced(replica(), (0, "1g.10gb", 3)), nodes) == wrong(
        "1 1g.10gb instance", "2 1g.10gb instances"
    )


def test_a_gpu_less_or_more_is_not_what_was_asked_for():
    assert judge_one(job(gpus=2), replica(gpus=(0,))) == wrong("1 whole GPU", "2 whole GPUs")
    assert judge_one(job(gpus=2), replica(gpus=(0, 1, 2))) == wrong("3 whole GPUs", "2 whole GPUs")
    assert judge_one(job(gpus=1), replica()) == wrong("no GPU", "1 whole GPU")
    assert judge_one(job(cpus=1), replica(gpus=(0,), cpus=1)) == wrong("1 whole GPU", "no GPU")


def test_shares_are_not_whole_gpus_and_whole_gpus_not_shares():
    assert judge_one(job(gpus=1), replica(gpus=(0, 1), milli=500)) == wrong("2 0.5 GPU shares", "1 whole GPU")
    assert judge_one(job(gpus=1), replica(gpus=(0,), milli=999)) == wrong("1 0.999 GPU share", "1 whole GPU")
    assert judge_one(job(milli=500), replica(gpus=(0,))) == wrong("1 whole GPU", "1 0.5 GPU share")


def test_another_share_is_not_what_was_asked_for():
    assert judge_one(job(milli=500), replica(gpus=(0,), milli=501)) == wrong(
        "1 0.501 GPU share", "1 0.5 GPU share"
    )


def repeated(gpu):
    return wrong(f"gpu {gpu} more than once", "each GPU once")


def test_whole_gpus_are_distinct():
    assert judge_one(job(gpus=2), replica(gpus=(3, 3))) == (
        *broken(Rule.GPU_CAPACITY, "node n0 gpu 3", "2 holders: a, a", "1 holder"),
        *repeated(3),
    )


def test_only_the_gpu_that_is_repeated_is_named():
    found = judge_one(job(gpus=3), replica(gpus=(5, 4, 5)))

    assert repeated(5)[0] in found
    assert len(found) == 2


def test_a_share_and_its_rest_on_one_gpu_are_not_one_share():
    halves = holding(replica(), gpus=(GpuShare(index=0, milli=500), GpuShare(index=0, milli=500)))

    assert judge_one(job(milli=500), halves) == (
        *wrong("2 0.5 GPU shares", "1 0.5 GPU share"),
        *repeated(0),
    )


def test_cpu_memory_disk_and_resources_are_exactly_as_asked_for():
    large = node("n0", disk_mib=4096, resources={"rdma/hca": 8})
    wants = asking(job(cpus=2, memory_gib=1), disk_mib=512, resources={"rdma/hca": 1})
    gets = holding(replica(cpus=2, memory_gib=1), disk_mib=512, resources={"rdma/hca": 1})

    assert judge_one(wants, gets, [large]) == ()
    assert judge_one(wants, holding(gets, cpu_milli=2500), [large]) == wrong("2.5 CPU cores", "2 CPU cores")
    assert judge_one(wants, holding(gets, cpu_milli=1999), [large]) == wrong("1.999 CPU cores", "2 CPU cores")
    assert judge_one(wants, holding(gets, memory_mib=1025), [large]) == wrong(
        "1025 MiB of memory", "1024 MiB of memory"
    )
    assert judge_one(wants, holding(gets, disk_mib=0), [large]) == wrong("0 MiB of disk", "512 MiB of disk")
    assert judge_one(wants, holding(gets, resources={}), [large]) == wrong("0 rdma/hca", "1 rdma/hca")
    assert judge_one(job(cpus=2, memory_gib=1), holding(gets, disk_mib=0), [large]) == wrong(
        "1 rdma/hca", "0 rdma/hca"
    )


def test_nothing_of_a_resource_is_the_same_as_no_word_of_it():
    assert judge_one(job(cpus=1), holding(replica(cpus=1), resources={"rdma/hca": 0})) == ()


def test_each_replica_is_judged():
    world = snapshot(jobs=[job("a", gpus=1, replicas=2)])

    found = judge(world, placement("a", replica(gpus=(0,)), replica(gpus=(1, 2))))

    assert found == broken(Rule.REQUEST, "job a replica 1", "2 whole GPUs", "1 whole GPU")


def test_a_running_job_is_what_it_is():
    runs = job("a", gpus=4, cpus=8, at=[replica(gpus=(0,), cpus=1)])

    assert judge(snapshot(jobs=[runs]), runs.placement) == ()


def test_a_running_job_that_moves_holds_what_it_asks_for():
    runs = job("a", gpus=2, at=[replica(gpus=(0,))])
    world, policy = snapshot(jobs=[runs]), rules(migrate=True)

    assert judge(world, placement("a", replica(gpus=(2, 3))), policy=policy) == ()
    assert judge(world, placement("a", replica(gpus=(2,))), policy=policy) == wrong(
        "1 whole GPU", "2 whole GPUs"
    )


def test_of_a_running_job_that_grows_or_shrinks_only_new_replicas_are_judged():
    old = [replica(gpus=(0,)), replica(gpus=(1,))]
    runs = job("a", gpus=2, replicas=(1, 4), at=old)
    world = snapshot(jobs=[runs])

    assert judge(world, placement("a", old[0])) == ()
    assert judge(world, placement("a", *old, replica(gpus=(2, 3)))) == ()
    assert judge(world, placement("a", old[0], replica(gpus=(2,)), old[1])) == broken(
        Rule.REQUEST, "job a replica 1", "1 whole GPU", "2 whole GPUs"
    )
