"""`gpuplan explain` on one job: everything that there is to say, with its source."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuplan.models.dependency import Dependency, FinishedJob, JobOutcome
from gpuplan.models.errors import BadInputError
from gpuplan.models.gang import Gang
from gpuplan.models.job import Progress
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Objective
from gpuplan.models.timing.learnt_speeds import with_learnt_scaling
from gpuplan.planner.explain.explanation import Explanation, Remedies
from gpuplan.planner.explain.job import explain
from gpuplan.planner.render.explain_job import explanation_text
from gpuplan.planner.render.style import Style
from tests.support.builders.build import NOW, job, node, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.harness.explain_helpers import greedy_plan
from tests.support.output.golden import golden_section
from tests.support.samples.horizon_plans import HOUR, at, looking_ahead, running, timely_plan, waiting, whole

TEXTS = Path(__file__).with_name("texts.golden.txt")


def text(plan, name, **more):
    options = {"width": 80, "colour": False, "ascii_only": False} | more
    return explanation_text(explain(plan, name, source="plan.json"), Style(**options))


def lines(plan, name):
    """What is said by label; what goes on is joined."""
    found, label = {}, ""
    for line in text(plan, name).splitlines()[2:]:
        label = line[2:14].strip() or label
        found[label] = f"{found.get(label, '')} {line[14:].strip()}".strip()
    return found


def finished(name, hours, *, queue="research", user="ann", outcome=JobOutcome.SUCCEEDED):
    return FinishedJob(
        name=name,
        queue=queue,
        user=user,
        outcome=outcome,
        started_at=NOW - timedelta(hours=hours),
        ended_at=NOW,
    )


def test_a_job_with_a_promised_start():
    found = text(timely_plan(), "render")

    assert found == golden_section(TEXTS, "a job with a promised start", found)


def test_a_job_that_starts_and_one_that_runs():
    found = text(timely_plan(), "sweep")

    assert found == golden_section(TEXTS, "a job that starts", found)
    assert lines(timely_plan(), "train-a")["takes"] == "3h, as declared; 2h left"


def test_the_job_it_displaces_and_the_job_that_displaces_it():
    old = job("old", gpus=8, at=[replica("n0", gpus=range(8))])
    world = snapshot(jobs=[old, job("new", gpus=8, priority=9)])
    plan = drafted(world, placement("new", replica("n0", gpus=range(8))), stopped=["old"])

    taker, victim = lines(plan, "new"), lines(plan, "old")

    assert taker["in exchange"] == "old is stopped and waits: -1,680 points, loses 8 GPU-hours"
    assert victim["in exchange"] == "new starts now: +8,000 points"
    assert victim["why"].startswith("MakesRoom: makes room for new; ran 1h, loses 8 GPU-hours")
    assert victim["places"] == "leaves n0"


def crowd(**objective):
    """Full for a day; one waiting job is of unknown duration and has had much, one declares 6 hours."""
    full = job("full", gpus=8, at=[replica("n0", gpus=range(8))], expected_duration="1d", preemptible=False)
    waits = job("waits", gpus=2, waited=timedelta(hours=1), progress=Progress(completed=0, served="90h"))
    rival = job("rival", gpus=2, waited=timedelta(hours=2), expected_duration="6h")
    policy = Policy(objective=Objective(**objective), solvers=())
    return greedy_plan(snapshot(nodes=[node("n0")], jobs=[full, waits, rival]), policy)


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("completion", "2 GPUs for 2d19h on average, waited 1h): rival (2 GPUs for 6h, waited 2h)"),
        (
            "least-attained-service",
            "2 GPUs, had 90 GPU-hours, waited 1h): rival (2 GPUs, had 0 GPU-hours, waited 2h)",
        ),
        (
            "fairness",
            (
                "2 GPUs, rho 0.89, waited 2h): waits (2 GPUs, rho 1.27, waited 1h); "
                "rho is the time here over that with an equal share of the cluster"
            ),
        ),
    ],
)
def test_jobs_ahead_are_told_with_the_measure_of_the_goal(goal, said):
    plan = crowd(goal=goal)
    name = "rival" if goal == "fairness" else "waits"

    assert lines(plan, name)["ahead"].endswith(said)


def test_of_an_unknown_duration_it_says_what_counts_for_the_end_and_what_for_the_order():
    assert lines(crowd(), "waits")["takes"].startswith(
        "not known: its end is reckoned with 1h (the policy's default), its place in the order "
        "with 2d19h left (the mean of jobs of unknown duration)"
    )
    assert lines(crowd(goal="makespan"), "waits")["takes"].startswith("1h, the policy's default")
    assert lines(crowd(), "rival")["takes"] == "6h, as declared"


def test_of_a_learnt_duration_it_says_that_the_order_goes_by_the_mean():
    waits = job("r-9", gpus=8, queue="research", user="ann", held=True)
    world = snapshot(jobs=[waits], queues=[queue("research")])
    past = tuple(finished(f"r-{hours}", hours) for hours in (1, 2, 6))
    world = world.model_copy(update={"finished": past})

    takes = lines(greedy_plan(world, Policy(solvers=())), "r-9")["takes"]

    assert takes.startswith("6h, 90th percentile of 3 finished jobs of ann in research with such a name; ")
    assert "; its place in the order is reckoned with " in takes
    assert takes.endswith("left (their mean)")


def test_a_job_that_moves_says_from_where():
    old = job("old", gpus=8, at=[replica("n0", gpus=range(8))])

    plan = drafted(snapshot(jobs=[old]), placement("old", replica("n1", gpus=range(8))))

    assert lines(plan, "old")["places"] == "n0 → n1"


@pytest.mark.parametrize(
    ("remedies", "said"),
    [
        (Remedies(), "Nothing that was tried would make it start."),
        (Remedies(unplaced=True), "so no change was tried."),
        (Remedies(unconfirmed=2), "Whether 2 changes would do is not known."),
        (Remedies(together_with=("b",)), "It starts only together with b; priorities were not tried."),
    ],
)
def test_what_is_said_where_no_change_helps(remedies, said):
    found = explain(timely_plan(), "render", source="plan.json").model_copy(update={"remedies": remedies})

    told = " ".join(explanation_text(found, Style(width=80)).split())

    assert said in told
    assert ("Nothing that was tried" in told) != remedies.unplaced
    assert "more change" not in told


def test_what_it_depends_on_is_told_job_by_job():
    on = [Dependency(job=name) for name in ("p", "f", "r", "b")]
    subject = waiting("a", gpus=1, depends_on=on, depends_on_at_least=2)
    others = [running("r", replica(gpus=[0]), hours=1), waiting("b", gpus=8, held=True)]
    world = snapshot(jobs=[subject, *others]).model_copy(
        update={"finished": (finished("p", 1), finished("f", 1, outcome=JobOutcome.FAILED))}
    )

    assert lines(drafted(world, policy=looking_ahead()), "a")["depends on"] == (
        "p has succeeded: yes f has succeeded: never any more r has succeeded: expected 13:00 "
        "b has succeeded: not known when 2 of these suffice"
    )


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ([], "1h, the policy's default"),
        (
            [finished(f"train-{hours}", hours) for hours in range(1, 15)],
            "13h, 90th percentile of 14 finished jobs of ann in research with such a name",
        ),
        (
            [finished(f"other{'x' * hours}", hours) for hours in range(1, 5)],
            "4h, 90th percentile of 4 finished jobs of ann in research",
        ),
        (
            [finished("t", hours, user="bob") for hours in range(1, 5)],
            "4h, 90th percentile of 4 finished jobs in research",
        ),
    ],
)
def test_an_expected_duration_says_what_it_rests_on(over, words):
    subject = job("train-7", gpus=1, queue="q").model_copy(update={"queue": "research", "user": "ann"})
    world = snapshot(jobs=[subject]).model_copy(update={"finished": tuple(over)})
    world = world.model_copy(
        update={"queues": tuple(each.model_copy(update={"name": "research"}) for each in world.queues)}
    )

    assert lines(drafted(world), "train-7")["takes"] == words


def test_a_slower_model_takes_longer():
    subject = waiting("a", gpus=8, hours=2, gpu_models={"H100-80GB": 2, "T4": 1})
    world = snapshot(jobs=[subject], nodes=[node("n0", model="T4")])

    assert lines(drafted(world, placement("a", *whole("n0"))), "a")["takes"] == "2h, as declared; 4h on T4"


def test_jobs_on_its_places_until_then():
    jobs = [
        waiting("a", gpus=4),
        waiting("b", gpus=4, hours=2),
        running("r", replica("n0", gpus=range(4)), hours=1),
        running("s", replica("n0", gpus=range(4, 8)), hours=9),
    ]
    planned = [
        LaterStart("a", 3, (replica("n0", gpus=range(4)),)),
        LaterStart("b", 1, (replica("n0", gpus=range(4)),)),
    ]

    assert lines(drafted(snapshot(jobs=jobs), policy=looking_ahead(), planned=planned), "a")[
        "until then"
    ] == (
        "r is on n0 until 13:00, in its place b is from 13:00 on n0 until 15:00, in its place "
        "s is on n0 until 21:00"
    )


def test_no_start_within_the_horizon_and_no_horizon_at_all():
    world = snapshot(jobs=[waiting("a", gpus=8, deadline=at(2))])

    ahead, now = drafted(world, policy=looking_ahead()), drafted(world)

    assert lines(ahead, "a")["start"] == "none up to 2026-11-21 00:00"
    assert lines(ahead, "a")["deadline"] == "14:00: missed"
    assert lines(now, "a")["start"] == "not projected, the plan looks at this instant alone"


def test_the_same_as_data():
    found = explain(timely_plan(), "train-moe", source="plan.json")

    assert Explanation.model_validate_json(found.model_dump_json()) == found
    assert found.duration.seconds == 6 * HOUR
    assert [neighbour.job for neighbour in found.neighbours] == ["train-a", "sweep"]


def test_ascii_and_colour():
    assert text(timely_plan(), "train-moe", ascii_only=True).isascii()
    assert text(timely_plan(), "train-moe", colour=True).startswith("\x1b[")


def test_an_unknown_job_is_suggested_a_known_one():
    with pytest.raises(
        BadInputError, match=r"plan\.json: no job has the name 'rendr'.*\n.*'render' was meant"
    ):
        explain(timely_plan(), "rendr", source="plan.json")


def test_how_a_job_scales_and_where_that_is_known_from():
    def over(number, size, hours):
        return finished(f"lm-{number}", hours).model_copy(update={"replicas": size})

    waits = job("lm-7", user="ann", queue="research", replicas=(1, 4))
    states = waits.model_copy(update={"name": "own-8", "gang": Gang(min=1, max=4, scaling={1: 1, 4: 2.5})})
    known = snapshot(jobs=[waits, states], queues=[queue("research")]).model_copy(
        update={"finished": tuple(over(number, 1 + number % 2, 8 - 3 * (number % 2)) for number in range(6))}
    )

    plan = greedy_plan(with_learnt_scaling(known), Policy())

    assert lines(plan, "lm-7")["scales"] == (
        "speed 1, 1.6, 2.8 with 1, 2, 4 replicas, learnt from finished jobs with such a name"
    )
    assert lines(plan, "own-8")["scales"] == "speed 1, 2.5 with 1, 4 replicas, as declared"


@pytest.mark.slow
def test_what_is_held_for_a_job_that_starves_and_beside_it():
    """A node of eight GPUs, busy for an hour: six are held for one job, and two are left for the next."""
    jobs = [
        running("busy", replica(gpus=range(8)), hours=1),
        job("wide", gpus=6, expected_duration=5 * HOUR, waited=timedelta(days=8)),
        job("small", gpus=2, expected_duration=5 * HOUR, waited=timedelta(days=2)),
        job("late", gpus=1, expected_duration=5 * HOUR),
    ]
    plan = greedy_plan(snapshot(nodes=[node("n0")], jobs=jobs), Policy())
    held = {name: explain(plan, name, source="plan").held for name in ("wide", "small", "late")}

    assert (held["wide"].job, held["wide"].nodes, held["wide"].begins) == ("wide", ("n0",), at(1))
    assert (held["small"].job, held["small"].nodes) == ("wide", ("n0",))
    assert held["late"] is None
    assert {"wide", "small"} & {name for name in held if "held" in lines(plan, name)} == {"wide", "small"}


def test_a_job_that_waits_for_the_sake_of_the_queue_is_told_how_to_start():
    """Two jobs of three hours would delay by hours a gang that has room in half an hour."""
    gang = job("gang", gpus=8, expected_duration=HOUR, waited=timedelta(hours=12))
    small = [job(name, gpus=1, expected_duration=3 * HOUR) for name in ("a", "b")]
    held = running(
        "r", replica("n0", gpus=range(4)), hours=0, expected_duration=3 * HOUR // 2, preemptible=False
    )
    shown = text(greedy_plan(snapshot(nodes=[node("n0", gpus=8)], jobs=[held, gang, *small]), Policy()), "a")

    assert "rollouts: 0" in shown
    assert "-1 points" not in shown
