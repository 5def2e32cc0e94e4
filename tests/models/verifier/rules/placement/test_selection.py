from gpuplan.models.affinity import Toleration
from gpuplan.models.cluster import Gpu, MigInstance, NodeGpus, Taint
from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, node, placement, pool, replica, snapshot
from tests.support.harness.verify_helpers import asking, broken, judge, rules, sliced

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


def test_a_taint_keeps_away_jobs_that_do_not_tolerate_it():
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


def too_little_memory(found, needed):
    return broken(Rule.SELECTION, f"{HERE} gpu 0", f"{found} MiB of GPU memory", f"at least {needed} MiB")


def test_the_memory_of_each_whole_gpu_must_suffice():
    wants = asking(job(gpus=1), gpu_memory_mib=40000)

    assert judge_on(node(gpu_memory_mib=40000), wants) == ()
    assert judge_on(node(gpu_memory_mib=39999), wants) == too_little_memory(39999, 40000)


def test_a_share_gets_its_part_of_the_memory_rounded_down():
    wants = asking(job(milli=500), gpu_memory_mib=500)

    assert judge_on(node(gpu_memory_mib=1000), wants, milli=500) == ()
    assert judge_on(node(gpu_memory_mib=999), wants, milli=500) == too_little_memory(499, 500)


def test_a_mig_instance_gets_the_memory_of_its_slices():
    layout = (MigInstance(profile="3g.40gb", start=4),)
    one = with_details(Gpu(index=0, mig=layout), memory_mib=80000)
    wants = asking(job(), mig={"3g.40gb": 1})
    held = placement("a", sliced(replica(), (0, "3g.40gb", 4)))

    assert judge(snapshot(nodes=[one], jobs=[asking(wants, gpu_memory_mib=40000)]), held) == ()
    assert judge(
        snapshot(nodes=[one], jobs=[asking(wants, gpu_memory_mib=40001)]), held
    ) == too_little_memory(40000, 40001)


def test_an_unknown_mig_instance_has_no_known_memory():
    layout = (MigInstance(profile="5g.50gb", start=0),)
    known = with_details(Gpu(index=0, mig=layout))
    gpus = NodeGpus(model="X1", count=1, memory_mib=81559, details=(Gpu(index=0, mig=layout),))
    unknown = node("n0").model_copy(update={"gpus": gpus})
    wants = asking(job(), mig={"5g.50gb": 1}, gpu_memory_mib=1)
    held = placement("a", sliced(replica(), (0, "5g.50gb", 0)))
    too_small = too_little_memory(0, 1)[0]

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


def test_where_the_cluster_chooses_gpus_all_of_them_must_be_healthy():
    sick = with_details(Gpu(index=0, healthy=False))
    chosen = sick.model_copy(update={"gpus": sick.gpus.model_copy(update={"pinned": False})})

    assert judge_on(chosen, job(gpus=1), gpus=(1,)) == broken(
        Rule.SELECTION,
        HERE,
        "any GPUs of the node, of which 0 unhealthy",
        "healthy GPUs, or GPUs that the cluster can be told",
    )
    assert judge_on(chosen, job(cpus=1), gpus=()) == ()


def test_a_running_job_stays_where_it_could_not_start():
    runs = job(gpus=1, at=[replica(gpus=(0,))], node_selector={"zone": "a"})
    world = snapshot(nodes=[node("n0", cordoned=True)], jobs=[runs])

    assert judge(world, runs.placement) == ()


def test_a_node_to_be_drained_takes_nothing_new():
    assert judge_on(node(drain=True), job(gpus=1)) == broken(
        Rule.SELECTION, HERE, "to be drained", "a node that is not to be drained"
    )


def test_every_condition_on_labels_must_hold():
    near = {"key": "disk", "values": ("ssd", "nvme")}
    not_old = {"key": "age", "operator": "NotIn", "values": ("old",)}
    tested = {"key": "tested", "operator": "Exists"}
    no_spot = {"key": "spot", "operator": "DoesNotExist"}
    wants = job(gpus=1, affinity=(near, not_old, tested, no_spot))
    good = {"disk": "nvme", "tested": ""}

    def told(**labels):
        labels = {key: value for key, value in (good | labels).items() if value is not None}
        return [(each.found, each.allowed) for each in judge_on(node(labels=labels), wants)]

    assert told() == told(age="new") == []
    assert told(disk="hdd") == [("label disk=hdd", "label disk in nvme, ssd")]
    assert told(disk=None) == [("no label disk", "label disk in nvme, ssd")]
    assert told(age="old") == [("label age=old", "label age not in old")]
    assert told(tested=None) == [("no label tested", "a label tested")]
    assert told(spot="yes") == [("label spot=yes", "no label spot")]


def test_the_region_must_be_allowed():
    resident = job(gpus=1, regions=("eu", "ch"))

    assert judge_on(node(region="ch"), resident) == ()
    assert judge_on(node(region="us"), resident) == broken(Rule.SELECTION, HERE, "region us", "region ch, eu")
    assert judge_on(node(), resident) == broken(Rule.SELECTION, HERE, "no region", "region ch, eu")


def test_shares_of_time_sliced_gpus_are_for_jobs_that_allow_it():
    sliced_node = node(time_sliced=True)

    assert judge_on(sliced_node, job(milli=500, time_slicing=True), milli=500) == ()
    assert judge_on(sliced_node, job(gpus=1)) == ()
    assert judge_on(node(), job(milli=500), milli=500) == ()
    assert judge_on(sliced_node, job(milli=500), milli=500) == broken(
        Rule.SELECTION,
        f"{HERE} gpu 0",
        "a share that is time-sliced",
        "shares with isolation, or a job that allows time slicing",
    )


def test_a_node_with_gpus_is_not_added_for_a_job_without():
    world = snapshot(
        jobs=[job(cpus=1), job("b", gpus=1)],
        pools=[pool("spot"), pool("cpus", template=node("cpus", gpus=0))],
    )
    gpu_node, cpu_node = node("spot-1", pool="spot"), node("cpus-1", gpus=0, pool="cpus")

    def onto(added, name, held):
        return judge(world, placement(name, held), added=(added,))

    assert onto(cpu_node, "a", replica("cpus-1", cpus=1)) == ()
    assert onto(gpu_node, "b", replica("spot-1", gpus=(0,))) == ()
    assert onto(gpu_node, "a", replica("spot-1", cpus=1)) == broken(
        Rule.SELECTION,
        "job a on node spot-1",
        "a job without GPUs on an added node with GPUs",
        "a job that needs GPUs",
    )
    assert onto(gpu_node, "a", replica("n0", cpus=1)) == ()


def test_a_running_job_that_moves_or_grows_is_judged_at_its_new_places():
    closed = node("n1", cordoned=True)
    runs = job("a", gpus=1, replicas=(1, 2), at=[replica(gpus=(0,))])
    world = snapshot(nodes=[node("n0"), closed], jobs=[runs])
    told = broken(Rule.SELECTION, "job a on node n1", "cordoned", "a node that is not cordoned")
    there = replica("n1", gpus=(0,))

    assert judge(world, placement("a", there), policy=rules(migrate=True)) == told
    assert judge(world, placement("a", replica(gpus=(0,)), there)) == told


def test_a_running_job_that_grows_or_shrinks_keeps_its_old_places_wherever_they_are():
    closed = node("n1", cordoned=True)
    old = [replica("n1", gpus=(0,)), replica("n1", gpus=(1,))]
    runs = job("a", gpus=1, replicas=(1, 3), at=old)
    world = snapshot(nodes=[node("n0"), closed], jobs=[runs])

    assert judge(world, placement("a", *old, replica(gpus=(0,)))) == ()
    assert judge(world, placement("a", old[1])) == ()


def test_a_running_job_that_moves_takes_none_of_its_places_on_a_closed_node_with_it():
    closed = node("n1", cordoned=True)
    stays, goes = replica("n1", gpus=(0,)), replica("n1", gpus=(1,))
    runs = job("a", gpus=1, replicas=2, at=[stays, goes])
    world = snapshot(nodes=[node("n0"), closed], jobs=[runs])

    found = judge(world, placement("a", stays, replica(gpus=(0,))), policy=rules(migrate=True))

    assert found == broken(Rule.SELECTION, "job a on node n1", "cordoned", "a node that is not cordoned")
