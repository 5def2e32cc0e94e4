"""Limits of accounts as quotas: checked against Slurm's own rule on random trees of accounts."""

from __future__ import annotations

import random

import pytest

from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import MILLI
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.sources.slurm.cluster.limits import is_refused, queues_of
from gpuplan.planner.sources.slurm.slurm import read_slurm_files
from tests.planner.sources.slurm.test_slurm import RECORDED, job, pending

HEADER = "Cluster|Account|User|Partition|ParentName|GrpTRES|MaxTRES|MaxWall\n"


def queues(*rows, qos="", cluster="c"):
    notes = []
    text = HEADER + "\n".join(rows)
    return queues_of(text, qos, cluster, lambda *note: notes.append(note)), dict(notes)


def limits(found, used, resource=ALL_MODELS):
    return queue_limits(found.tree(used), resource).limit


def test_a_recorded_cluster_has_the_limits_of_its_accounts():
    found = read_slurm_files(RECORDED / "22.05-accounts")

    assert not list(inconsistencies(found.snapshot))
    assert queue_limits(found.snapshot.queues, ALL_MODELS).limit == {
        "astro": 8 * MILLI,
        "astro/alice": 6 * MILLI,
        "bio": None,
        "physics": 16 * MILLI,
        "slurm/all": None,
        "slurm/unlimited": None,
    }
    assert (job(found, "5").queue, job(found, "3").queue) == ("astro/alice", "physics")
    assert not job(found, "5").held
    assert {note.partition(":")[0] for note in found.notes} >= {"account astro", "QOS urgent"}


def test_a_limit_gives_no_right_to_gpus():
    found, _ = queues("c|top||||gres/gpu=8||", "c|low|||top|gres/gpu=4||")

    assert all(each.quota is None or not each.quota.nominal for each in found.tree({"top", "low"}))


@pytest.mark.parametrize("seed", range(200))
def test_usage_is_allowed_exactly_where_slurm_allows_it(seed):
    """Usage of an account and all below it is at most its limit, for all GPUs and for each type."""
    chance = random.Random(seed)
    names = [f"a{number}" for number in range(chance.randint(1, 7))]
    parent = {name: chance.choice(names[:number]) for number, name in enumerate(names) if number}
    limit = {
        name: {
            resource: chance.randint(0, 9)
            for resource in ("gres/gpu", "gres/gpu:h100")
            if chance.random() < 0.4
        }
        for name in names
    }
    found, _ = queues(
        *(
            f"c|{name}|||{parent.get(name, 'root')}|{','.join(f'{key}={most}' for key, most in of.items())}||"
            for name, of in limit.items()
        )
    )
    used = chance.sample(names, chance.randint(1, len(names)))
    own = {name: chance.randint(0, 6) for name in used}

    def below(top, name):
        while name is not None and name != top:
            name = parent.get(name)
        return name == top

    for slurm, ours in (("gres/gpu", ALL_MODELS), ("gres/gpu:h100", "h100")):
        tree = queue_limits(found.tree(used), ours)
        usage = tree.usage({name: count * MILLI for name, count in own.items()})
        allowed = all(most is None or usage[name] <= most for name, most in tree.limit.items())
        totals = {name: sum(own[each] for each in used if below(name, each)) for name in names}
        assert allowed == all(totals[name] <= limit[name].get(slurm, totals[name]) for name in names)


def test_limits_of_other_clusters_do_not_count():
    found, _ = queues("c|a||||gres/gpu=8||", "d|a||||gres/gpu=2||", "d|b||||gres/gpu=2||")

    assert limits(found, {"a", "b"}) == {
        "a": 8 * MILLI,
        "b": None,
        "slurm/all": None,
        "slurm/unlimited": None,
    }


def test_limits_that_are_no_quotas_are_noted():
    rows = (
        "c|a|||root|cpu=8,gres/gpu=4|gres/gpu=2|1:00",
        "c|a|eve||||gres/gpu=2|1:00",
        "c|a|eve|p||gres/gpu=1||",
    )
    _, notes = queues(*rows, qos="Name|GrpTRES|MaxJobsPU\nnormal||\nfast|gres/gpu=3|2\n")

    assert {subject: what.partition(" are no ")[0] for subject, what in notes.items()} == {
        "account a": "its limits GrpTRES=cpu=8, MaxTRES=gres/gpu=2, MaxWall=1:00",
        "association a/eve": "its limits GrpTRES=gres/gpu=1 in partition p",
        "QOS fast": "its limits GrpTRES=gres/gpu=3, MaxJobsPU=2",
    }


@pytest.mark.parametrize(
    ("reason", "refused"),
    [
        *(("AssocGrpGRES", False), ("Priority", False), ("Resources", False), ("None", False)),
        *(("QOSGrpGRES", True), ("QOSMaxGRESPerUser", True), ("AssocGrpCpuLimit", True)),
        *(("AssocMaxJobsLimit", True), ("PartitionTimeLimit", True), ("BadConstraints", True)),
    ],
)
def test_a_job_that_waits_for_a_limit_that_is_no_quota_is_held(reason, refused):
    assert is_refused(reason) == refused
    after = job(pending("after", state_reason=reason), "19")
    assert (after.held, reason in after.hold_reason) == (refused, refused)
