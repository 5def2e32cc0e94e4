"""What is told of a measurement: gaps over time, limits, targets."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from benchmarks import plans, rebalancer, size_table
from benchmarks.__main__ import QUICK_PLANS, main
from benchmarks.limits import LIMITS, exceeded, figures, load, made_of
from benchmarks.markdown import percent, seconds, table
from benchmarks.plots import plot_gaps
from benchmarks.progress import first_plan, gain_missed, gap_at, gaps, seconds_to
from benchmarks.records import append, read
from benchmarks.size_table import ADMISSION_INSTANCES, SIZE_INSTANCES, plan_table, stage_table
from benchmarks.targets import NOT_MEASURED, TARGETS, targets_table


def milestone(when, objective, bound):
    return {"seconds": when, "stage": "any", "objective": objective, "bound": bound, "found": None}


SEARCH = [
    milestone(0.4, None, 2000),
    # Leaving all as it is misses a guarantee.
    milestone(0.5, -5000, 2000),
    milestone(1.0, 800, 2000),
    milestone(2.0, 800, 1000),
    # A stage that does not know of a bound does not undo it.
    milestone(3.0, 950, 2000),
    milestone(4.0, 990, 1000),
]


def record(case="L", benchmark="sizes"):
    took = dict.fromkeys(("pose", "greedy", "verify", "formulate", "relax"), 1.0)
    counts = dict.fromkeys(("nodes", "running", "waiting", "classes", "columns", "rows", "non_zeros"), 1_234)
    return {
        "benchmark": benchmark,
        "case": case,
        "seed": 1,
        "stages": {
            "seconds": took,
            "sizes": counts,
            "families": {},
            "bound": 1000,
            "greedy": 800,
            "greedy_gap": 0.25,
            "peak_mib": 100.0,
        },
        "plan": {
            "seconds": 5.0,
            "gap": 10 / 990,
            "gain_missed": 0.002,
            "solver": "milp",
            "missed": 3,
            "placed": {"started": 97, "stopped": 1, "later": 0, "gpu_ratio": 0.9},
            "milestones": SEARCH,
            "peak_mib": 200.0,
            "solver_peak_mib": 300.0,
        },
    }


def test_the_gap_counts_from_the_first_plan():
    assert first_plan(SEARCH) == 1.0
    assert gap_at(SEARCH, 0.9) is None
    assert gap_at(SEARCH, 1.0) == pytest.approx(1200 / 800)


def test_a_bound_once_proven_stays():
    assert gap_at(SEARCH, 3.5) == pytest.approx(50 / 950)


def test_the_gap_never_grows():
    ratios = [gap for _, gap in gaps(SEARCH)]
    assert ratios == sorted(ratios, reverse=True)


def test_tells_when_a_gap_was_reached():
    assert seconds_to(SEARCH, 0.3) == 2.0
    assert seconds_to(SEARCH, 0.001) is None


def test_a_table_has_as_many_cells_in_each_line():
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


@pytest.mark.parametrize(("value", "said"), [(None, "–"), (0.034, "0.03 s"), (12.3, "12 s")])
def test_seconds_have_two_digits_below_ten(value, said):
    assert seconds(value) == said


def test_the_gain_missed_is_a_share_of_what_can_be_decided():
    """Changing nothing misses two guaranteed GPUs; a plan that misses none is worth little by itself."""
    assert gain_missed(objective=100, bound=200, nothing=-20_000) == pytest.approx(100 / 20_200)
    assert gain_missed(objective=-20_000, bound=200, nothing=-20_000) == 1.0
    assert gain_missed(objective=0, bound=0, nothing=0) == 0.0


def test_the_seeds_of_a_case_are_told_by_the_median_and_the_worst():
    plans = [record(), record(), record()]
    for number, plan in enumerate(plans):
        plan["seed"], plan["plan"] = number, plan["plan"] | {"gain_missed": (0.03, 0.001, 0.002)[number]}
    text = size_table.seed_table([(replace(SIZE_INSTANCES[2], seed=plan["seed"]), plan) for plan in plans])
    assert "0.20 % (3.00 %)" in text
    assert "0, 1, 2" in text


def test_a_gain_missed_above_its_limit_is_told():
    limits = {"L": {"gain_missed_percent": {"mean": 0.0, "spread": 0.0, "limit": 0.15}}}
    (said,) = exceeded("L", figures(record()), limits, 2)
    assert said.startswith("L, seed 2: gain_missed_percent is 0.2, limit 0.15")


def test_a_missing_ratio_is_a_dash():
    assert percent(None) == "–"
    assert percent(0.12345) == "12.35 %"


@pytest.mark.parametrize("make", [stage_table, plan_table])
def test_tables_of_an_instance_are_whole(make):
    lines = make([(SIZE_INSTANCES[2], record())]).splitlines()
    assert len({line.count("|") for line in lines}) == 1


def test_records_are_appended_and_read_again(tmp_path):
    path = tmp_path / "log.jsonl"
    append(path, "sizes", {"case": "S"})
    append(path, "plans", {"case": "M"})
    assert [each["case"] for each in read(path)] == ["S", "M"]
    assert [each["case"] for each in read(path, "plans")] == ["M"]


def test_records_name_versions_and_machine_but_no_host(tmp_path):
    path = tmp_path / "log.jsonl"
    append(path, "sizes", {})
    (found,) = read(path)
    assert {"numpy", "highspy", "ortools"} <= found["versions"].keys()
    assert found["machine"].keys() == {"cores", "cpu", "memory_gib"}


def test_a_figure_above_its_limit_is_told():
    limits = {"L": {"plan_s": {"mean": 1.0, "spread": 0.1, "limit": 4.0}}}
    (said,) = exceeded("L", figures(record()), limits, 1)
    assert "plan_s is 5, limit 4" in said


def test_a_figure_at_its_limit_is_fine():
    limits = {"L": {"plan_s": {"mean": 1.0, "spread": 0.1, "limit": 5.0}}}
    assert not exceeded("L", figures(record()), limits, 1)


def test_a_case_without_limits_is_fine():
    assert not exceeded("XL", figures(record()), {}, 1)


def test_the_limits_are_of_sizes_and_figures_that_are_measured():
    limits = load(LIMITS)
    assert limits.keys() <= {instance.title for instance in SIZE_INSTANCES}
    for bounds in limits.values():
        assert bounds.keys() <= figures(record()).keys()


def test_new_limits_hold_for_what_they_are_made_of(tmp_path):
    path = tmp_path / "limits.yaml"
    slow = record()
    slow["plan"] = slow["plan"] | {"seconds": 9.0}
    path.write_text(made_of([record(), slow]))
    limits = load(path)
    assert limits["L"]["plan_s"] == {"mean": 7.0, "spread": 4.0, "limit": 27.5}
    assert not exceeded("L", figures(slow), limits, 1)


def test_limits_are_generous():
    for bounds in load(LIMITS).values():
        for each in bounds.values():
            assert each["mean"] + each["spread"] < each["limit"]


def test_targets_are_of_instances_that_are_measured():
    measured = {("sizes", instance.title) for instance in SIZE_INSTANCES}
    measured |= {("admission", instance.title) for instance in ADMISSION_INSTANCES}
    assert {(benchmark, case) for _, _, benchmark, case, _ in TARGETS} <= measured


def test_targets_without_a_record_are_left_open():
    cells = [line.split(" | ")[2] for line in targets_table([]).splitlines()[2:]]
    assert cells == [f"{NOT_MEASURED} |"] * len(TARGETS)


def test_targets_tell_the_last_record():
    first, last = record(), record()
    last["plan"] = last["plan"] | {"missed": 50}
    text = targets_table([first, last])
    assert "50 of 147 jobs" in text
    assert "3 of 100 jobs" not in text


def test_every_target_can_be_told():
    records = [record(case, benchmark) for _, _, benchmark, case, _ in TARGETS]
    assert f"{NOT_MEASURED} |" not in targets_table(records)


@pytest.mark.slow
def test_the_same_records_are_the_same_plot(tmp_path):
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    plot_gaps([record()], one)
    plot_gaps([record()], other)
    assert "</svg>" in one.read_text()
    assert one.read_bytes() == other.read_bytes()


def test_a_record_is_plain_json():
    assert json.loads(json.dumps(record())) == record()


@pytest.fixture
def measured(monkeypatch):
    """Cases that are measured, by benchmark; nothing is."""
    asked = {}

    def measure(benchmark, instances, _log):
        asked[benchmark] = [instance.title for instance in instances]
        return [(instance, record(instance.title, benchmark)) for instance in instances]

    def lines(_folder, *, only, repeats, log):
        asked["plans"] = list(only)
        yield "| plans |\n"

    monkeypatch.setattr(size_table, "measure", measure)
    monkeypatch.setattr(plans, "lines", lines)
    monkeypatch.setattr(rebalancer, "main", lambda _log: "skipped")
    return asked


def test_without_a_command_the_quick_ones_are_measured(measured):
    done = CliRunner().invoke(main, catch_exceptions=False)
    assert done.exit_code == 0
    assert measured.keys() == {"plans", "sizes", "admission"}
    assert "XL" not in measured["sizes"]
    assert all(case in QUICK_PLANS for case in measured["plans"])
    assert "skipped" in done.output


def test_one_case_is_measured_alone(measured):
    CliRunner().invoke(main, ["sizes", "--only", "M"], catch_exceptions=False)
    assert measured == {"sizes": ["M", "M", "M"]}


def test_a_check_fails_above_a_limit(measured, monkeypatch):
    tight = {"M": {"plan_s": {"mean": 1.0, "spread": 0.0, "limit": 4.0}}}
    monkeypatch.setattr("benchmarks.__main__.load", lambda: tight)
    assert measured == {}
    done = CliRunner().invoke(main, ["sizes", "--only", "M", "--check"], catch_exceptions=False)
    assert done.exit_code == 1
    assert "M, seed 3: plan_s is 5, limit 4" in done.output
    assert CliRunner().invoke(main, ["sizes", "--only", "L", "--check"]).exit_code == 0


def test_a_report_tells_a_log_again(tmp_path):
    path = tmp_path / "log.jsonl"
    append(path, "sizes", record())
    done = CliRunner().invoke(main, ["report", str(path)], catch_exceptions=False)
    assert "3 of 100 jobs" in done.output
    assert "| L, seed 1 | 60 s |" in done.output
