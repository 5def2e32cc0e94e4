"""Affinity in the problem: which jobs must not, or had better not, share a domain."""

from __future__ import annotations

from gpuplan.models.cluster import Level
from gpuplan.models.policy.policy import Policy
from gpuplan.models.problem.problem import AffinityNeighbour
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build

PRICES = {"interference": [{"classes": ["train", "serve"], "points": 5}]}


def posed(*jobs, policy=None, **more):
    return build_problem(build.snapshot(jobs=jobs, **more), Policy(**policy or {}))


def runs(name="r", *, on="n0", **more):
    more = {"preemptible": False} | more
    return build.job(name, gpus=1, at=[build.replica(on, gpus=(0,))], **more)


def keeps_from(level="node", **labels):
    return {"anti_affinity": [{"labels": labels, "level": level}]}


def test_tags_are_label_sets_that_some_job_avoids_and_another_carries():
    jobs = [
        build.job("a", gpus=1, **keeps_from(app="db", role="main")),
        build.job("b", gpus=2, labels={"app": "db", "role": "main", "x": "y"}),
        build.job("c", gpus=3, labels={"app": "db"}, **keeps_from("zone", app="db")),
        build.job("d", gpus=4, **keeps_from(app="unknown")),
    ]

    classes = {one.jobs[0]: (one.carries, one.avoids) for one in posed(*jobs).classes}

    # Tag 0 is app=db alone, tag 1 app=db with role=main.
    assert classes == {
        "a": ((), ((1, Level.NODE),)),
        "b": ((0, 1), ()),
        "c": ((0,), ((0, Level.ZONE),)),
        "d": ((), ()),
    }


def test_running_jobs_stand_where_new_ones_could_meet_them():
    jobs = [
        runs("shy", **keeps_from("rack", app="x")),
        runs("loud", on="n1", labels={"app": "y"}),
        runs("other", on="n1", labels={"app": "z"}),
        build.job("x", gpus=1, labels={"app": "x"}),
        build.job("y", gpus=2, **keeps_from(app="y")),
    ]

    found = posed(*jobs).standing

    assert found == (
        AffinityNeighbour("loud", None, (1,), "", carries=(1,), avoids=()),
        AffinityNeighbour("shy", None, (0,), "", carries=(), avoids=((0, Level.RACK),)),
    )


def test_an_incumbent_that_stands_is_named():
    jobs = [
        runs("soft", labels={"app": "x"}, preemptible=True),
        build.job("w", gpus=1, priority=3, **keeps_from(app="x")),
    ]

    problem = posed(*jobs)

    assert problem.standing[0].incumbent == 0
    assert problem.incumbents[0].job == "soft"


def test_a_job_on_a_node_that_takes_nothing_new_still_guards_its_rack():
    nodes = [
        build.node("a", rack="r", cordoned=True),
        build.node("b", rack="r"),
        build.node("c", rack="r"),
        build.node("d", rack="s"),
    ]
    shy = runs(
        "shy",
        on="a",
        anti_affinity=[
            {"labels": {"app": "x"}, "level": "rack"},
            {"labels": {"app": "x"}, "level": "node"},
        ],
    )

    found = posed(shy, build.job("x", gpus=1, labels={"app": "x"}), nodes=nodes).standing

    assert found == (AffinityNeighbour("shy", None, (0,), "", (), ((0, Level.RACK),)),)


def test_priced_meetings_name_workload_classes_of_jobs_that_could_meet():
    jobs = [
        runs("r", workload_class="serve"),
        runs("s", on="n1", workload_class="train"),
        build.job("t", gpus=1, workload_class="train"),
        build.job("o", gpus=2, workload_class="other"),
    ]

    problem = posed(*jobs, policy={"prices": PRICES})

    assert [one.workload for one in problem.classes] == ["", "train"]
    assert problem.standing == (
        AffinityNeighbour("r", None, (0,), "serve", (), ()),
        AffinityNeighbour("s", None, (1,), "train", (), ()),
    )
    assert problem.charges.interference == (("serve", "train", 5),)


def test_entries_for_the_same_pair_add_up_and_free_ones_are_left_out():
    entries = [
        {"classes": ["b", "a"], "points": 2},
        {"classes": ["a", "b"], "points": 3},
        {"classes": ["c", "c"], "points": 0},
    ]

    problem = posed(build.job(gpus=1, workload_class="c"), policy={"prices": {"interference": entries}})

    assert problem.charges.interference == (("a", "b", 5),)
    assert problem.classes[0].workload == ""


def test_without_avoidance_and_prices_no_job_counts():
    assert posed(runs(labels={"app": "x"}), build.job("w", gpus=1)).standing == ()
