"""A plan at a prompt or in a notebook is one line or one small table, not the whole document."""

from __future__ import annotations

import re

from tests.support.samples.sample_plans import busy_plan, small_plan


def test_a_plan_prints_its_id_epoch_actions_by_kind_objective_and_gap():
    assert repr(busy_plan()) == (
        "Plan(plan_id='7c1e55aa01234567', epoch='2026-11-20T12:00:00Z', start=4, grow=1, shrink=1, "
        "migrate=3, preempt=1, scale_up=1, repartition=1, cordon=1, drain=2, scale_down=2, keep=1, wait=1, "
        "objective=12300, gap=0.056911)"
    )


def test_print_shows_the_same():
    plan = busy_plan()

    assert f"Plan({str(plan).replace(' ', ', ')})" == repr(plan)


def test_a_plan_without_a_bound_has_no_gap():
    plan = small_plan()
    unbound = plan.solution.model_copy(update={"bound": None, "gap": None})

    assert repr(plan.model_copy(update={"solution": unbound})).endswith("objective=45900, gap=None)")


def test_a_notebook_shows_the_same_as_a_table():
    plan = busy_plan()

    cells = re.findall(r"<tr><th>(\w+)</th><td>([^<]*)</td></tr>", plan._repr_html_())

    assert cells == [(name, str(value)) for name, value in plan.__repr_args__()]
