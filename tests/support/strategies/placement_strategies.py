"""
Hypothesis strategies for what might be planned on a snapshot.

`candidates(snapshot)` mixes legal and illegal placements, many of them only just one or the other, and
`node_changes(snapshot)` such nodes to be added and removed; `legal_placements(snapshot)` breaks no rule;
`wild_placements(snapshot)` is anything that has the form of a placement.

`tests/support/test_snapshot_strategies.py` holds floors on how often each rule is broken.
"""

from __future__ import annotations

from hypothesis import strategies as st

from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.verifier.verify import verify
from tests.support.builders.build import by_value
from tests.support.strategies.replica_strategies import placements_of, replica_for
from tests.support.strategies.snapshot_strategies import HCA, ONE_IN_FOUR, PROFILES

UNKNOWN = "unknown"


@st.composite
def candidates(draw, snapshot):
    """What runs, waiting jobs mostly where there is room, and often one deed too many."""
    placements, greedy = snapshot.running_placements, draw(ONE_IN_FOUR)
    for job in _startable(snapshot):
        if not draw(ONE_IN_FOUR):
            placement = draw(
                placements_of(job, snapshot.cluster.nodes, placements, only_if_it_fits=not greedy)
            )
            placements += (placement,) if placement else ()
    if placements and not greedy and not draw(ONE_IN_FOUR):
        placements = draw(st.sampled_from(DEEDS))(draw, snapshot, placements)
    return placements


@st.composite
def node_changes(draw, snapshot):
    """(nodes added, names removed): mostly none, some as a pool allows, some not."""
    added, removed = (), ()
    for pool in snapshot.cluster.pools:
        if draw(ONE_IN_FOUR):
            update = {
                "name": draw(st.sampled_from(("p-1", "p-1", "n0"))),
                "pool": pool.name,
                "ready_at": None,
            }
            update |= {"labels": {"strange": "1"}} if draw(ONE_IN_FOUR) else {}
            added = (pool.template.model_copy(update=update),)
        if draw(ONE_IN_FOUR):
            removed = (draw(st.sampled_from(tuple(node.name for node in snapshot.cluster.nodes))),)
    return added, removed


@st.composite
def legal_placements(draw, snapshot, policy=None):
    """What runs, and waiting jobs started one after the other while no rule is broken."""
    policy = policy or by_value()
    placements = snapshot.running_placements
    for job in draw(st.permutations(_startable(snapshot))):
        placement = draw(placements_of(job, snapshot.cluster.nodes, placements, only_if_it_fits=True))
        if placement and not verify(snapshot, policy, (*placements, placement)).violations:
            placements += (placement,)
    return placements


@st.composite
def wild_placements(draw, snapshot):
    """Anything that has the form of a placement, about things that exist or do not."""
    index, start = st.sampled_from((0, 1, 5, 127)), st.integers(0, 7)
    profile = st.sampled_from((*PROFILES, "7g.80gb", "odd"))
    held = st.builds(GpuShare, index=index, milli=st.sampled_from((1000, 500, 1))) | st.builds(
        MigSlice, index=index, profile=profile, start=start
    )
    replica = st.builds(
        Replica,
        node=st.sampled_from((*(node.name for node in snapshot.cluster.nodes), UNKNOWN)),
        gpus=st.lists(held, max_size=3).map(tuple),
        cpus=st.sampled_from((0, 1, 1_000_000)),
        memory_mib=st.sampled_from((0, 1024)),
        resources=st.sampled_from(({}, {HCA: 1}, {"odd": 1}, {"odd": 0})),
    )
    placement = st.builds(
        Placement,
        job=st.sampled_from((*(job.name for job in snapshot.jobs), UNKNOWN)),
        slot=st.sampled_from((0, 0, 7)),
        replicas=st.lists(replica, min_size=1, max_size=3).map(tuple),
    )
    known = st.sampled_from(snapshot.running_placements) if snapshot.running_placements else placement
    return tuple(draw(st.lists(placement | known, max_size=8)))


def _startable(snapshot):
    return [job for job in snapshot.jobs if job.running is None and not job.held]


# --- deeds: what can be wrong with a plan ------------------------------------------------------------------


def _at(draw, snapshot, placements):
    """Index of one placement, mostly of a job that starts; those of running jobs come first."""
    indices = range(len(placements))
    started = indices[len(snapshot.running_placements) :]
    return draw(st.sampled_from(indices if not started or draw(ONE_IN_FOUR) else started))


def _changed(placements, index, **update):
    changed = placements[index].model_copy(update=update)
    return (*placements[:index], changed, *placements[index + 1 :])


def _stop(draw, snapshot, placements):
    index = _at(draw, snapshot, placements)
    return placements[:index] + placements[index + 1 :]


def _repeat(draw, snapshot, placements):
    return (*placements, placements[_at(draw, snapshot, placements)])


def _rename(draw, snapshot, placements):
    return _changed(placements, _at(draw, snapshot, placements), job=UNKNOWN)


def _delay(draw, snapshot, placements):
    return _changed(placements, _at(draw, snapshot, placements), slot=1)


def _one_replica_more(draw, snapshot, placements):
    index = _at(draw, snapshot, placements)
    job = snapshot.job_by_name[placements[index].job]
    node = snapshot.cluster.node_by_name[placements[index].replicas[0].node]
    free = free_resources_by_node(snapshot.cluster.nodes, placements)[node.name]
    return _changed(placements, index, replicas=(*placements[index].replicas, replica_for(job, node, free)))


def _one_replica_less(draw, snapshot, placements):
    index = _at(draw, snapshot, placements)
    replicas = placements[index].replicas
    if len(replicas) == 1:
        return _one_replica_more(draw, snapshot, placements)
    return _changed(placements, index, replicas=replicas[1:])


def _to_another_node(draw, snapshot, placements):
    node = draw(st.sampled_from((*(node.name for node in snapshot.cluster.nodes), UNKNOWN)))
    return _changed_replica(draw, snapshot, placements, lambda replica: {"node": node})


def _to_another_gpu(draw, snapshot, placements):
    step = draw(st.integers(1, 2))
    return _changed_replica(
        draw,
        snapshot,
        placements,
        lambda replica: {
            "gpus": tuple(held.model_copy(update={"index": held.index + step}) for held in replica.gpus)
        },
    )


def _to_another_slice(draw, snapshot, placements):
    return _changed_replica(
        draw,
        snapshot,
        placements,
        lambda replica: {
            "gpus": tuple(
                held.model_copy(update={"start": (held.start + 1) % 8})
                if isinstance(held, MigSlice)
                else held
                for held in replica.gpus
            )
        },
    )


def _with_more_cpu(draw, snapshot, placements):
    return _changed_replica(draw, snapshot, placements, lambda replica: {"cpu_milli": replica.cpu_milli + 1})


def _without_a_gpu(draw, snapshot, placements):
    return _changed_replica(draw, snapshot, placements, lambda replica: {"gpus": replica.gpus[1:]})


def _start_one_more(draw, snapshot, placements):
    """A job more, as if nothing was used: the commonest way to be one too many."""
    job = _missing(draw, snapshot, placements)
    placement = job and draw(placements_of(job, snapshot.cluster.nodes, ()))
    return (*placements, placement) if placement else placements


def _start_somewhere(draw, snapshot, placements):
    """A job more, where there is room, on nodes that do not suit it if there are any."""
    job = _missing(draw, snapshot, placements)
    nodes = [node for node in snapshot.cluster.nodes if node.gpus or not (job and job.request.needs_gpu)]
    if job is None or not nodes:
        return placements
    nodes = [node for node in nodes if ineligibility(job, node)] or nodes
    free, replicas = free_resources_by_node(snapshot.cluster.nodes, placements), []
    for _ in range(job.gang.minimum):
        node = draw(st.sampled_from(nodes))
        replicas.append(replica_for(job, node, free[node.name]))
        free[node.name].take(replicas[-1])
    return (*placements, Placement(job=job.name, replicas=tuple(replicas)))


def _missing(draw, snapshot, placements):
    missing = sorted({job.name for job in snapshot.jobs} - {placement.job for placement in placements})
    return snapshot.job_by_name[draw(st.sampled_from(missing))] if missing else None


def _take_over(draw, snapshot, placements):
    """A waiting job in place of one that runs."""
    job = _missing(draw, snapshot, placements)
    running = [each for each in placements if snapshot.job_by_name[each.job].running]
    if job is None or not running:
        return placements
    victim = draw(st.sampled_from(running))
    left = tuple(each for each in placements if each is not victim)
    names = {replica.node for replica in victim.replicas}
    nodes = [node for node in snapshot.cluster.nodes if node.name in names]
    placement = draw(placements_of(job, nodes, left))
    return (*left, placement) if placement else left


def _swap(draw, snapshot, placements):
    """Two running jobs change places."""
    running = [each for each in placements if snapshot.job_by_name[each.job].running]
    if len(running) < 2:
        return placements
    one, other = draw(st.permutations(running))[:2]
    swapped = {one.job: other.replicas, other.job: one.replicas}
    return tuple(
        each.model_copy(update={"replicas": swapped[each.job]}) if each in (one, other) else each
        for each in placements
    )


def _changed_replica(draw, snapshot, placements, update):
    index = _at(draw, snapshot, placements)
    before = placements[index].replicas
    at = draw(st.integers(0, len(before) - 1))
    changed = before[at].model_copy(update=update(before[at]))
    return _changed(placements, index, replicas=(*before[:at], changed, *before[at + 1 :]))


DEEDS = (
    _start_one_more,
    _start_somewhere,
    _start_one_more,
    _start_somewhere,
    *(_take_over,) * 4,
    *(_swap,) * 8,
    _stop,
    _repeat,
    _rename,
    _delay,
    _one_replica_more,
    _one_replica_less,
    _to_another_node,
    _to_another_gpu,
    _to_another_slice,
    _with_more_cpu,
    _without_a_gpu,
)
