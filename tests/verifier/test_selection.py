from build import job, node, placement, replica, snapshot
from judging import asking, broken, judge, sliced

from planner.models.cluster import Gpu, MigInstance, NodeGpus, Taint
from planner.models.job import Toleration
from planner.models.violation import Rule

HERE = "job a on node n0"


def judge_on(node, job, *, gpus=(0,), milli=1000):
    held = replica(gpus=gpus, milli=milli) if job.request.needs_gpu else replica(cpus=1)
    return judge(snapshot(nodes=[node], jobs=[job]), placement("a", held))


def with_details(*details, memory_mib=81559):
    gpus = NodeGpus(model="H100-80GB", count=2, memory_mib=memory_mib, details=details)
    return node("n0").model_copy(update={"gpus": gpus})


def test_a_ready_node_takes_a_job():
    assert judge_on(node(), job(gpus=1)) == ()


def test_the_node_must_exist():
    found = judge(snapshot(jobs=[job(gpus=1)]), placement("a", replica("gone", gpus=(0,))))

    assert found == broken(Rule.SELECTION, "job a on node gone", "no such node", "a node of the snapshot")


def test_the_node_must_be_ready():
    assert judge_on(node(ready=False), job(gpus=1)) == broken(
        Rule.SELECTION, HERE, "not ready", "a ready node"
    )


def test_a_cordoned_node_takes_nothing_new():
    assert judge_on(node(cordoned=True), job(gpus=1)) == broken(
        Rule.SELECTION, HERE, "cordoned", "a node that is not cordoned"
    )


def test_every_label_of_the_selector_must_match():
    wants = job(gpus=1, node_selector={"zone": "a", "disk": "ssd"})

    assert judge_on(node(labels={"zone": "a", "disk": "ssd", "more": "x"}), wants) == ()
    assert judge_on(node(labels={"zone": "a", "disk": "hdd"}), wants) == broken(
        Rule.SELECTION, HERE, "label disk=hdd", "label disk=ssd"
    )
    assert judge_on(node(labels={"zone": "a"}), wants) == broken(
        Rule.SELECTION, HERE, "no label disk", "label disk=ssd"
    )


def test_a_taint_keeps_away_whoever_does_not_tolerate_it():
    tainted = node(taints=[Taint(key="team", value="x"), Taint(key="old", effect="NoExecute")])
    both = [Toleration(key="team", value="x"), Toleration(key="old")]

    assert judge_on(tainted, job(gpus=1, tolerations=both)) == ()
    assert judge_on(tainted, job(gpus=1, tolerations=both[:1])) == broken(
        Rule.SELECTION, HERE, "taint old=:NoExecute", "tolerated taints"
    )
    assert judge_on(tainted, job(gpus=1, tolerations=[Toleration(key="team", value="y"), both[1]])) == broken(
        Rule.SELECTION, HERE, "taint team=x:NoSchedule", "tolerated taints"
    )


def test_a_taint_that_only_prefers_never_forbids():
    assert judge_on(node(taints=[Taint(key="team", effect="PreferNoSchedule")]), job(gpus=1)) == ()


def test_the_gpu_model_must_be_allowed():
    wants = job(gpus=1, gpu_models=["A100-80GB", "H200-141GB"])

    assert judge_on(node(model="A100-80GB"), wants) == ()
    assert judge_on(node(model="T4"), wants) == broken(
        Rule.SELECTION, f"{HERE} gpu 0", "GPU model T4", "GPU model A100-80GB, H200-141GB"
    )


def test_a_job_without_gpus_may_stand_on_any_gpu_model():
    assert judge_on(node(model="T4"), job(cpus=1, gpu_models=["A100-80GB"])) == ()


def test_the_memory_of_each_whole_gpu_must_suffice():
    wants = asking(job(gpus=1), gpu_memory_mib=40000)

    assert judge_on(node(gpu_memory_mib=40000), wants) == ()
    assert judge_on(node(gpu_memory_mib=39999), wants) == broken(
        Rule.SELECTION, f"{HERE} gpu 0", "39999 MiB of GPU memory", "at least 40000 MiB"
    )


def test_a_share_gets_its_part_of_the_memory_rounded_down():
    wants = asking(job(milli=500), gpu_memory_mib=500)

    assert judge_on(node(gpu_memory_mib=1000), wants, milli=500) == ()
    assert judge_on(node(gpu_memory_mib=999), wants, milli=500) == broken(
        Rule.SELECTION, f"{HERE} gpu 0", "499 MiB of GPU memory", "at least 500 MiB"
    )


def test_a_mig_instance_gets_the_memory_of_its_slices():
    layout = (MigInstance(profile="3g.40gb", start=4),)
    one = with_details(Gpu(index=0, mig=layout), memory_mib=80000)
    wants = asking(job(), mig={"3g.40gb": 1})
    held = placement("a", sliced(replica(), (0, "3g.40gb", 4)))

    assert judge(snapshot(nodes=[one], jobs=[asking(wants, gpu_memory_mib=40000)]), held) == ()
    assert judge(snapshot(nodes=[one], jobs=[asking(wants, gpu_memory_mib=40001)]), held) == broken(
        Rule.SELECTION, f"{HERE} gpu 0", "40000 MiB of GPU memory", "at least 40001 MiB"
    )


def test_a_mig_instance_nobody_knows_has_no_known_memory():
    layout = (MigInstance(profile="5g.50gb", start=0),)
    known = with_details(Gpu(index=0, mig=layout))
    gpus = NodeGpus(model="X1", count=1, memory_mib=81559, details=(Gpu(index=0, mig=layout),))
    unknown = node("n0").model_copy(update={"gpus": gpus})
    wants = asking(job(), mig={"5g.50gb": 1}, gpu_memory_mib=1)
    held = placement("a", sliced(replica(), (0, "5g.50gb", 0)))
    too_small = broken(Rule.SELECTION, f"{HERE} gpu 0", "0 MiB of GPU memory", "at least 1 MiB")[0]

    assert too_small in judge(snapshot(nodes=[known], jobs=[wants]), held)
    assert too_small in judge(snapshot(nodes=[unknown], jobs=[wants]), held)


def test_unknown_gpu_memory_does_not_suffice_for_a_request():
    assert judge_on(node(gpu_memory_mib=0), job(gpus=1)) == ()
    assert judge_on(node(gpu_memory_mib=0), asking(job(gpus=1), gpu_memory_mib=1)) != ()


def test_each_gpu_must_exist():
    assert judge_on(node(gpus=2), job(gpus=1), gpus=(1,)) == ()
    assert judge_on(node(gpus=2), job(gpus=1), gpus=(2,)) == broken(
        Rule.SELECTION, f"{HERE} gpu 2", "no such GPU", "one of the node's 2 GPUs"
    )
    assert judge_on(node(gpus=0), job(gpus=1)) == broken(
        Rule.SELECTION, f"{HERE} gpu 0", "no such GPU", "one of the node's 0 GPUs"
    )


def test_each_gpu_must_be_healthy():
    sick = with_details(Gpu(index=0, healthy=False))

    assert judge_on(sick, job(gpus=1), gpus=(1,)) == ()
    assert judge_on(sick, job(gpus=1), gpus=(0,)) == broken(
        Rule.SELECTION, f"{HERE} gpu 0", "unhealthy", "a healthy GPU"
    )


def test_a_running_job_stays_wherever_it_is():
    runs = job(gpus=1, at=[replica(gpus=(0,)), replica("gone", gpus=(9,))], node_selector={"zone": "a"})
    world = snapshot(
        nodes=[with_details(Gpu(index=0, healthy=False)).model_copy(update={"ready": False})], jobs=[runs]
    )

    assert judge(world, runs.placement) == ()
