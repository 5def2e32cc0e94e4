"""What a simulation found as text: side by side, bounds marked, lines of nothing left out."""

from __future__ import annotations

from gpuplan.planner.render.simulation import simulation_text
from gpuplan.planner.render.style import Style
from gpuplan.planner.simulate.outcome import (
    Distribution,
    EpochFigures,
    Scorecard,
    ScoreValue,
    SimulatedRun,
    Simulation,
)
from tests.support.builders.build import NOW


def spread(value, *, at_least=False):
    figure = ScoreValue(value=value, at_least=at_least)
    return Distribution(mean=figure, p50=ScoreValue(value=value), p95=figure, p99=figure)


def scores(**about):
    given = {
        "jobs": 12,
        "finished": 10,
        "killed": 0,
        "running": 1,
        "waiting": 1,
        "held": 0,
        "not_submitted": 3,
        "finished_per_hour": 5.0,
        "wait": spread(90.0, at_least=True),
        "worth_wait": ScoreValue(value=120.0, at_least=True),
        "completion": spread(7200.0, at_least=True),
        "slowdown": spread(1.5),
        "makespan": ScoreValue(value=7200.0, at_least=True),
        "finish_time_fairness_max": ScoreValue(value=1.8, at_least=True),
        "unfair_share": ScoreValue(value=0.25, at_least=True),
        "gpu_utilization": 0.756,
        "gpu_hours": 1234.56,
        "lost_gpu_hours": 0.0,
        "idle_gpu_hours": 0.0,
        "queue_mean": 2.5,
        "queue_max": 7,
        "jain_mean": 0.9,
        "jain_min": 0.5,
        "preemptions": 4,
        "interruptions": 0,
        "migrations": 0,
        "resizes": 0,
        "restarts": 4,
        "deadline_jobs": 0,
        "deadline_misses": 0,
        "cost": 0.0,
        "planning_seconds": 12.3,
        "planning_seconds_mean": 0.041,
        "planning_seconds_max": 1.25,
    }
    return Scorecard(**given | about)


def epoch():
    zeros = dict.fromkeys(
        ("submitted", "finished", "killed", "interrupted", "started", "preempted", "migrated", "resized"), 0
    )
    figures = {"gpu_allocation_ratio": 1.0, "fragmentation_ratio": 0.0, "jain_index": 1.0, "hourly_cost": 0.0}
    about = {"number": 0, "at": NOW, "running": 1, "waiting": 1, "objective": 1, "bound": None}
    return EpochFigures(**zeros, **figures, **about, solver="greedy")


def simulation(*cards, **about):
    runs = [
        SimulatedRun(
            name=f"run{number}", policy="p", solver="greedy", scores=card, epochs=(epoch(),), stopped="time"
        )
        for number, card in enumerate(cards)
    ]
    given = {
        "source": "s",
        "arrivals": "a.csv",
        "seed": 0,
        "began": NOW,
        "every": 300,
        "nodes": 2,
        "gpus": 16,
    }
    return Simulation(**given | about, runs=tuple(runs))


def text(shown, *, width=80, ascii_only=False):
    return simulation_text(shown, Style(width=width, ascii_only=ascii_only))


def line(shown, label):
    return next(line for line in shown.splitlines() if line.strip().startswith(label))


def test_figures_of_runs_stand_side_by_side():
    shown = text(simulation(scores(), scores(finished=8)))

    assert line(shown, "jobs finished").split()[2:] == ["10", "8"]
    assert line(shown, "GPUs in use").split()[3:5] == ["75.6", "%"]


def test_lower_bounds_are_marked_and_explained():
    shown = text(simulation(scores()))

    assert "≥ 1m30s" in line(shown, "wait, mean")
    assert "≥" not in line(shown, "p50")
    assert "≥ is a lower bound" in shown


def test_what_is_exact_needs_no_explanation():
    over = scores(running=0, waiting=0, wait=spread(90.0), completion=spread(90.0), worth_wait=None)
    fair = {"makespan": ScoreValue(value=90.0), "finish_time_fairness_max": None, "unfair_share": None}

    assert "≥" not in text(simulation(over.model_copy(update=fair)))


def test_lines_of_nothing_are_left_out():
    shown = text(simulation(scores()))

    assert all(label not in shown for label in ("killed", "migrations", "deadlines", "cost", "of lost work"))
    assert "deadlines missed" in text(simulation(scores(deadline_jobs=3), scores()))


def test_it_fits_its_width_and_many_runs_stand_below_each_other():
    for width in (60, 80, 120):
        shown = text(simulation(*[scores()] * 9), width=width)
        assert max(map(len, shown.splitlines())) <= width
    assert text(simulation(*[scores()] * 9)).count("jobs finished") > 1


def test_queues_without_a_quota_are_named():
    assert "SOURCE lacks 2 queues of arriving jobs (x and y)" in text(
        simulation(scores(), added_queues=("x", "y"))
    )


def test_without_jobs_there_are_no_times():
    times = (
        "wait",
        "worth_wait",
        "completion",
        "slowdown",
        "makespan",
        "finish_time_fairness_max",
        "unfair_share",
    )
    shown = text(simulation(scores(jobs=0, **dict.fromkeys(times))))

    assert "wait" not in shown.replace("waiting", "")


def test_ascii_is_ascii():
    assert text(simulation(scores()), ascii_only=True).isascii()


def test_fairness_and_restarts_stand_with_what_they_consist_of():
    shown = text(simulation(scores(restarts=5, migrations=1)))

    assert line(shown, "finish-time fairness").split()[2:] == ["≥", "1.80"]
    assert line(shown, "unfair jobs").split()[2:] == ["≥", "25.0", "%"]
    assert [line(shown, label).split()[-1] for label in ("restarts", "preemptions", "migrations")] == list(
        "541"
    )


def test_epochs_at_events_are_said_to_be():
    assert "an epoch at each event, at least every 5m" in text(simulation(scores(), at_events=True))


def test_many_runs_begin_with_an_overview_of_a_line_each():
    shown = text(simulation(*(scores(restarts=number) for number in range(9))))

    assert "wait  completion" in shown.split("jobs finished", maxsplit=1)[0]
    assert [line(shown, f"run{number} ").split()[-1] for number in range(9)] == [
        f"{number}" for number in range(9)
    ]
    assert "wait  completion" not in text(simulation(scores()))
