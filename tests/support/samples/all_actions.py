"""Changes of every kind made by hand, and a small world of which one plan needs all of them."""

from __future__ import annotations

from gpuplan.models.cluster import Gpu, MigInstance, NodeGpus, NodePool
from gpuplan.models.job import ResourceRequest
from gpuplan.models.placement import MigSlice, Replica
from gpuplan.models.plan.actions import (
    Cordon,
    Drain,
    Grow,
    Migrate,
    Preempt,
    Repartition,
    ScaleDown,
    ScaleUp,
    Shrink,
)
from gpuplan.models.plan.precondition import Free, GpuLayout, JobRuns, NodeAbsent, NodeEmpty, NodeExists
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.policy.policy import Disruption
from gpuplan.planner.plan_file.plan_file import with_id
from tests.support.builders.build import (
    MODEL,
    by_value,
    cluster,
    job,
    node,
    placement,
    queue,
    replica,
    snapshot,
)
from tests.support.builders.plan_builders import plan_of, start

BECAUSE = Reason(code=ReasonCode.MAKES_ROOM, text="a test wants it")
MOVING = by_value(disruption=Disruption(migrate=True))
"""A policy under which running jobs may be moved."""


def instance(profile, at):
    return MigInstance(profile=profile, start=at)


def mig_node(name="mig0", *, gpus=1, layout=(), model=MODEL, **more):
    """A node with GPU 0 in MIG mode and a layout of (profile, start)."""
    details = (Gpu(index=0, mig=tuple(instance(*there) for there in layout)),)
    given = NodeGpus(model=model, count=gpus, memory_mib=81559, details=details)
    return node(name, gpus=gpus, **more).model_copy(update={"gpus": given})


def mig_job(name, *, at=None, **profiles):
    """A job that asks for MIG profiles, `g3_40` standing for `3g.40gb`."""
    asked = {f"{key[1]}g.{key[3:]}gb": count for key, count in profiles.items()}
    return job(name, at=at).model_copy(update={"request": ResourceRequest(mig=asked)})


def mig_replica(node_name, profile, at, *, gpu=0):
    return Replica(node=node_name, gpus=(MigSlice(index=gpu, profile=profile, start=at),))


def pool(name="cloud", *, most=2, least=0, provisioning="10m", **more):
    """A pool of nodes with eight GPUs."""
    return NodePool(name=name, template=node(name, **more), min=least, max=most, provisioning=provisioning)


def in_pool(pool_, name):
    """A node of a pool as it comes."""
    return pool_.template.model_copy(update={"name": name, "pool": pool_.name})


def with_pools(world, *pools):
    return world.model_copy(update={"cluster": world.cluster.model_copy(update={"pools": pools})})


def runs(world, name):
    return JobRuns(job=name, job_fingerprint=world.job_by_name[name].fingerprint())


def free(held):
    return Free(
        node=held.node,
        gpus=held.gpus,
        cpus=held.cpu_milli / 1000,
        memory_mib=held.memory_mib,
        disk_mib=held.disk_mib,
        resources=held.resources,
    )


def change(kind, subject, preconditions, *, once=(), id_=None, **fields):
    """An action of a kind with an id that tells what it is about."""
    type_ = kind.model_fields["type"].default
    return kind(
        id=id_ or f"{type_}/{subject}",
        reason=BECAUSE,
        preconditions=tuple(preconditions),
        after_actions=tuple(once),
        **fields,
    )


def begin(world, name, *replicas, once=(), recovery=0):
    """Start a waiting job."""
    fingerprint = world.job_by_name[name].fingerprint()
    found = start(f"start/{name}", placement(name, *replicas), fingerprint=fingerprint, after=once)
    return found.model_copy(update={"recovery": recovery})


def preempt(world, name, **more):
    before = world.job_by_name[name].placement
    return change(Preempt, name, [runs(world, name)], job=name, before=before, **more)


def shrink(world, name, *replicas, **more):
    before = world.job_by_name[name].placement
    places = {"before": before, "after": placement(name, *replicas)}
    return change(Shrink, name, [runs(world, name)], job=name, **places, **more)


def grow(world, name, *added, **more):
    """A running job keeps all it has and gets these replicas too."""
    before = world.job_by_name[name].placement
    places = {"before": before, "after": placement(name, *before.replicas, *added)}
    return change(Grow, name, [runs(world, name), *map(free, added)], job=name, **places, **more)


def migrate(world, name, *replicas, **more):
    """A running job goes to places that share nothing with those it has."""
    before = world.job_by_name[name].placement
    places = {"before": before, "after": placement(name, *replicas)}
    return change(Migrate, name, [runs(world, name), *map(free, replicas)], job=name, **places, **more)


def repartition(world, node_name, *layout, gpu=0, **more):
    """A GPU gets a layout of (profile, start)."""
    before = world.cluster.node_by_name[node_name].gpus.by_index[gpu].mig
    after = tuple(instance(*there) for there in layout)
    idle = tuple(there for there in before or () if there not in after)
    known = GpuLayout(node=node_name, gpu=gpu, instances=before, idle=idle)
    layouts = {"before": before, "after": after}
    return change(Repartition, f"{node_name}/gpu{gpu}", [known], node=node_name, gpu=gpu, **layouts, **more)


def cordon(name, **more):
    return change(Cordon, name, [NodeExists(node=name)], node=name, **more)


def drain(name, **more):
    return change(Drain, name, [NodeEmpty(node=name)], node=name, **more)


def scale_up(pool_, name, **more):
    fields = {"pool": pool_.name, "node": name, "after": in_pool(pool_, name)}
    return change(ScaleUp, name, [NodeAbsent(node=name)], provisioning=pool_.provisioning, **fields, **more)


def scale_down(pool_, name, **more):
    return change(ScaleDown, name, [NodeEmpty(node=name)], pool=pool_.name, node=name, **more)


def plan_with(world, *changes, policy=MOVING, placements=None):
    """A plan of these changes, in this order; all other jobs stay as they are."""
    changed = {action.job for action in changes if hasattr(action, "job")}
    others = [action for action in plan_of(world, policy=policy).actions if action.job not in changed]
    made = plan_of(world, actions=[*changes, *others], policy=policy)
    return with_id(made.model_copy(update={"placements": tuple(placements or ())}))


CLOUD = pool()
OLD = in_pool(CLOUD, "old")
WORLD = with_pools(
    snapshot(
        nodes=[
            *cluster(2),
            mig_node("mig0", layout=[("3g.40gb", 0), ("3g.40gb", 4)]),
            node("leaving", drain=True),
            OLD,
        ],
        jobs=[
            job("urgent", gpus=8, priority=5),
            job("victim", gpus=4, at=[replica("n0", gpus=range(4))]),
            job("thin", gpus=1, replicas=(1, 3), at=[replica("n1", gpus=[index]) for index in range(3)]),
            job("wide", gpus=1, replicas=(1, 2), priority=2, at=[replica("n1", gpus=[3])]),
            job("mover", gpus=2, priority=2, at=[replica("old", gpus=[0, 1])]),
            job("guest", gpus=1, priority=2, at=[replica("leaving", gpus=[0])]),
            mig_job("infer", g2_20=1),
            mig_job("serving", g3_40=1, at=[mig_replica("mig0", "3g.40gb", 0)]),
            job("fresh", gpus=8),
            job("huge", gpus=8, replicas=9),
        ],
        queues=[queue("q")],
    ),
    CLOUD,
)
"""Where a plan has use for changes of every kind."""

AFTER = (
    placement("fresh", replica("cloud-1", gpus=range(8))),
    placement("guest", replica("n1", gpus=[6])),
    placement("infer", mig_replica("mig0", "2g.20gb", 4)),
    placement("mover", replica("n1", gpus=[4, 5])),
    placement("serving", mig_replica("mig0", "3g.40gb", 0)),
    placement("thin", replica("n1", gpus=[0])),
    placement("urgent", replica("n0", gpus=range(8))),
    placement("wide", replica("n1", gpus=[1]), replica("n1", gpus=[3])),
)
"""Which job shall run where in that world."""

PLACES = {placed.job: placed.replicas for placed in AFTER}

CHANGES = (
    cordon("old"),
    shrink(WORLD, "thin", *PLACES["thin"]),
    preempt(WORLD, "victim"),
    repartition(WORLD, "mig0", ("3g.40gb", 0), ("2g.20gb", 4)),
    migrate(WORLD, "mover", *PLACES["mover"], once=["cordon/old"]),
    migrate(WORLD, "guest", *PLACES["guest"]),
    drain("leaving", once=["migrate/guest"]),
    drain("old", once=["migrate/mover"]),
    scale_down(CLOUD, "old", once=["drain/old"]),
    scale_up(CLOUD, "cloud-1"),
    begin(WORLD, "urgent", *PLACES["urgent"], once=["preempt/victim"]),
    begin(WORLD, "infer", *PLACES["infer"], once=["repartition/mig0/gpu0"]),
    begin(WORLD, "fresh", *PLACES["fresh"], once=["scale_up/cloud-1"]),
    grow(WORLD, "wide", replica("n1", gpus=[1]), once=["shrink/thin"]),
)
"""Changes of all ten kinds that lead there."""

PLAN = plan_with(WORLD, *CHANGES, placements=AFTER)
