"""Goals beside rules: the days, and the ratios of the table."""

from __future__ import annotations

from benchmarks.goals import GROUPS, JUDGED, POLICIES, tables
from benchmarks.same_knowledge import FIRST_JUDGED, PHILLY_DAYS
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.simulate.baselines import BASELINES


def test_judged_days_had_no_part_in_choices_and_each_entrant_is_a_policy_or_a_rule():
    assert not set(JUDGED) & set(PHILLY_DAYS[:FIRST_JUDGED])
    assert len(JUDGED) >= 5
    assert {each for group in GROUPS.values() for each in group.entrants} <= {*POLICIES, *BASELINES}
    for settings in POLICIES.values():
        Policy.model_validate(settings)


def test_ratios_are_to_sjf_of_the_same_day_and_days_without_all_entrants_are_left_out():
    name = "load 1.4"
    means = {JUDGED[0]: {"sjf": 100, "default": 90}, JUDGED[1]: {"sjf": 10, "default": 12}}
    records = [
        {"case": name, "day": day, "entrant": entrant, "completion": at.get(entrant, 50), "p95": 60}
        | {"makespan": 80, "worst": 1.5, "unfair": 0.25, "restarts": 3, "lost": 2.0}
        for day, at in means.items()
        for entrant in GROUPS[name].entrants
    ]
    half = {**records[0], "day": JUDGED[2]}

    shown = tables([*records, half]).splitlines()

    (row,) = [line for line in shown if "`default`" in line]
    assert shown[0].startswith(f"| {name}, 2 days |")
    assert [each.strip() for each in row.strip("|").split("|")] == [
        *("`default`", "1.05 (1.20)", "1.00 (1.00)", "1.00 (1.00)"),
        *("1.5 (1.5)", "25 % (25 %)", "3 (3)", "2 (2)"),
    ]
