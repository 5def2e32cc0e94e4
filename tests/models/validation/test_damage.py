"""Damage: what a snapshot still counts on that the world has lost, and the snapshot without it."""

import pytest

from gpuplan.models.calendar import Reservation
from gpuplan.models.cluster import Gpu, RackPower
from gpuplan.models.job import Progress
from gpuplan.models.validation import damage
from gpuplan.models.validation.base import DamageKind
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.damage import survey_damage, without_losses
from tests.support.builders.build import NOW, cluster, job, node, replica, snapshot
from tests.support.output.golden import figures

SICK = node("n0", details=[Gpu(index=1, healthy=False)])


def named(loss):
    return [(damage.kind, figures(damage.cause)) for damage in loss.damages]


@pytest.mark.parametrize(
    ("on", "held", "kind", "about"),
    [
        (node("n1"), replica("n0", gpus=[0]), "NodeGone", "n0"),
        (node("n0", ready=False), replica("n0", gpus=[0]), "NodeDown", "n0"),
        (node("n0", gpus=4), replica("n0", gpus=[4]), "GpuGone", "4 n0"),
        (SICK, replica("n0", gpus=[1]), "GpuUnhealthy", "1 n0"),
        (node("n0", mig={0: []}), replica("n0", gpus=[0]), "MigChanged", "0 n0"),
    ],
)
def test_a_job_gives_up_a_place_that_no_longer_holds(on, held, kind, about):
    world = snapshot(nodes=[on], jobs=[job("a", gpus=1, at=[held]), job("b", gpus=1)])

    found = survey_damage(world)

    assert list(found.losses) == ["a"]
    assert named(found.losses["a"]) == [(DamageKind(kind), about)]
    assert found.losses["a"].after is None
    waits = {"running": None, "progress": Progress(served="1h")}
    assert found.sound.job_by_name["a"] == world.job_by_name["a"].model_copy(update=waits)
    assert found.sound.job_by_name["b"] is world.job_by_name["b"]
    assert survey_damage(found.sound).losses == {}


def test_a_sound_snapshot_is_itself():
    world = snapshot(jobs=[job("a", gpus=1, at=[replica("n0", gpus=[0])])])

    assert survey_damage(world).sound is world
    assert survey_damage(world).notes == ()


def test_an_elastic_gang_goes_on_with_enough_and_gives_all_up_with_less():
    held = [replica("n0", gpus=[0]), replica("gone", gpus=[0]), replica("n1", gpus=[0])]
    enough = job("enough", gpus=1, replicas=(2, 3), at=held)
    less = job("less", gpus=1, replicas=(3, 4), at=held)

    found = survey_damage(snapshot(nodes=cluster(), jobs=[enough, less]))

    assert [one.node for one in found.losses["enough"].after.replicas] == ["n0", "n1"]
    assert found.losses["less"].after is None
    assert found.sound.job_by_name["enough"].running.replicas == (held[0], held[2])


def test_a_gang_below_its_minimum_gives_all_up():
    runs = job("a", gpus=1, replicas=4, at=[replica("n0", gpus=[index]) for index in range(3)])

    loss = survey_damage(snapshot(jobs=[runs])).losses["a"]

    assert named(loss) == [(DamageKind.REPLICAS_LOST, "3 4")]
    assert loss.after is None


def test_a_job_that_may_not_be_interrupted_is_left_on_an_unhealthy_gpu_alone():
    sick, gone = replica("n0", gpus=[1]), replica("gone", gpus=[0])
    left = job("left", gpus=1, at=[sick], preemptible=False)
    lost = job("lost", gpus=1, replicas=2, at=[replica("n0", gpus=[1]), gone], preemptible=False)

    found = (
        survey_damage(snapshot(nodes=[SICK], jobs=[left])),
        survey_damage(snapshot(nodes=[SICK], jobs=[lost])),
    )

    assert not found[0].losses["left"].released
    assert found[0].sound.job_by_name["left"].running
    assert found[1].losses["lost"].released
    assert found[1].sound.job_by_name["lost"].running is None


def test_two_jobs_on_one_gpu_are_an_error_and_no_damage():
    jobs = [job(name, gpus=1, at=[replica("n0", gpus=[0])]) for name in ("a", "b")]

    (one,) = inconsistencies(snapshot(jobs=jobs))

    assert one.damage is None


def test_a_node_that_came_back_smaller_is_named_unless_what_is_lost_was_too_much():
    stays = job("stays", gpus=1, at=[replica("n0", gpus=[0], cpus=8)])
    lost = job("lost", gpus=1, at=[replica("n0", gpus=[4], cpus=8)])
    small = node("n0", gpus=4, cpus=8)

    assert survey_damage(snapshot(nodes=[small], jobs=[stays, lost])).notes == ()
    (subject, damage), *_ = survey_damage(snapshot(nodes=[node("n0", cpus=8)], jobs=[stays, lost])).notes
    assert (subject, damage.kind) == ("node n0", DamageKind.NODE_OVERFULL)


def test_what_else_counts_on_nodes_that_are_gone_is_named():
    about = {
        "rack_power": (RackPower(rack="r9", watts=1000),),
        "reservations": (
            Reservation(name="named", nodes=("n0", "n9"), queues=("q",), start=NOW, duration=60),
            Reservation(name="many", count=3, queues=("q",), start=NOW, duration=60),
        ),
    }
    world = snapshot(jobs=[job("a", mig={"3g.20gb": 1})])
    world = world.model_copy(update={"cluster": world.cluster.model_copy(update=about)})

    found = survey_damage(world).notes
    assert {(subject, damage.kind, figures(damage.cause)) for subject, damage in found} == {
        ("reservation named", DamageKind.RESERVATION_SHORT, "n9"),
        ("reservation many", DamageKind.RESERVATION_SHORT, "2 3"),
        ("rack r9", DamageKind.RACK_EMPTY, ""),
        ("job a", DamageKind.PROFILE_NOT_OFFERED, "3g.20gb"),
    }


def test_only_the_losses_of_some_jobs_can_be_taken_off():
    jobs = [job(name, gpus=1, at=[replica("gone", gpus=[number])]) for number, name in enumerate("ab")]

    left = without_losses(snapshot(jobs=jobs), {"a"})

    assert [one.name for one in left.jobs if one.running] == ["b"]


HELD = [replica("n0", gpus=[0], cpus=30)]
RUNS = job("runs", gpus=1, cpus=30, at=HELD)
NODES = [node("n0", gpus=4, cpus=64), node("n1", gpus=4, mig={0: []})]
NEWS = {
    "sound": (job("new", gpus=1, cpus=30, at=[replica("n0", gpus=[1], cpus=30)]), 0),
    "overfull": (job("new", gpus=1, cpus=40, at=[replica("n0", gpus=[1], cpus=40)]), 1),
    "gone": (job("new", gpus=1, at=[replica("gone", gpus=[0])]), 1),
    "no such GPU": (job("new", gpus=1, at=[replica("n0", gpus=[4])]), 1),
    "cut": (job("new", gpus=1, at=[replica("n1", gpus=[0])]), 1),
    "too few": (job("new", gpus=1, replicas=2, at=[replica("n0", gpus=[1])]), 1),
    "no such profile": (job("new", mig={"9g.90gb": 1}), 1),
}


@pytest.mark.parametrize(("new", "damages"), NEWS.values(), ids=NEWS)
def test_what_differs_from_a_sound_snapshot_is_examined_like_a_whole_one(new, damages, monkeypatch):
    before = snapshot(nodes=NODES, jobs=[RUNS])
    assert not survey_damage(before).losses
    now, again = (before.model_copy(update={"jobs": (RUNS, new)}) for _ in range(2))

    found = survey_damage(now, before)

    whole = survey_damage(again)
    assert (found.losses, found.notes) == (whole.losses, whole.notes)
    assert len(found.losses) + len(found.notes) == damages
    if not damages:
        assert found.sound is now
        monkeypatch.setattr(damage, "_surveyed", None)
        survey_damage(before.model_copy(update={"jobs": (RUNS, new)}), before)


def test_damage_from_before_is_found_again():
    before = snapshot(nodes=NODES, jobs=[job("lost", gpus=1, at=[replica("gone", gpus=[0])])])
    assert survey_damage(before).losses
    now = before.model_copy(update={"jobs": (*before.jobs, job("waits", gpus=1))})

    assert list(survey_damage(now, before).losses) == ["lost"]
