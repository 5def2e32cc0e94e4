"""What is wrong between the files of a snapshot: all of it told, once each, in order."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.planner.sources.documents import build_snapshot
from gpuplan.planner.sources.files import load_snapshot
from tests.support.output.golden import figures
from tests.support.samples.small_document import BASE, JOB, running


def test_an_unknown_queue_is_told_with_the_one_that_was_meant(told):
    found = told("jobs:\n- name: a\n  queue: reserch\n  submitted_at: 2026-11-20T11:00:00Z\n")

    assert figures(found) == "jobs.yaml:3 a reserch research"
    assert "Known: batch, research." in found


def test_an_unoffered_profile_is_told_with_those_on_offer(told):
    offered = "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb H100-80GB"

    assert figures(told(f"jobs:\n- {JOB % 'request: {mig: {2g.10gb: 1}}'}\n")) == (
        f"jobs.yaml:2 train-a 2g.10gb {offered} 2g.20gb"
    )


def test_a_second_entry_of_a_name_is_told_with_the_first(told):
    assert figures(told(f"jobs:\n- {JOB % ''}\n", base=BASE + f"jobs:\n- {JOB % ''}\n")) == (
        "jobs.yaml:2 train-a base.yaml:10"
    )


def test_a_gpu_held_twice_is_told_with_both_jobs(told):
    first, second = JOB % running((3, 1000)), (JOB % running((3, 500))).replace("train-a", "train-b")

    found = told(f"jobs:\n- {first}\n- {second}\n")

    assert figures(found) == "jobs.yaml:3 train-b 3 n0 1.5 jobs.yaml:2"
    assert "Held by train-a, train-b." in found


def test_a_cycle_of_queues_is_printed(told):
    found = told("jobs: []", base=BASE.replace("{name: research}", "{name: research, parent: batch}"))

    assert figures(found) == "base.yaml:8 batch"
    assert ": batch -> research -> batch;" in found


def test_a_contradiction_between_sections_of_the_cluster_is_told_at_its_line(told):
    base = BASE.replace("{name: n1,", "{name: n1, pool: sport,")

    found = told("cluster:\n  pools:\n  - {name: spot, template: {name: s}, max: 2}\n", base=base)

    assert figures(found) == "base.yaml:5 n1 sport spot"


def test_a_wrong_pool_calls_no_node_wrong(told):
    base = BASE.replace("{name: n1,", "{name: n1, pool: base,")
    pools = "cluster:\n  pools: [{name: spot, template: {name: s}, max: 2}, {name: base}]\n"

    assert figures(told(pools, base=base)) == "jobs.yaml:2 base max jobs.yaml:2 base template"


def test_wrong_entries_do_not_hide_what_is_wrong_between_the_others(told):
    other = (JOB % "").replace("train-a", "b").replace("research", "nowhere")

    found = figures(told(f"jobs:\n- {JOB % 'priority: high'}\n- {other}\n"))

    assert "jobs.yaml:2 train-a high" in found
    assert "jobs.yaml:3 b nowhere" in found


def test_wrong_entries_are_not_taken_for_missing_ones(told):
    jobs = f"jobs:\n- {JOB % running((0, 1000))}\n"

    found = figures(
        told(jobs, base=BASE.replace("cpus: 96", "cpus: many").replace("research}", "research, quota: 5}"))
    )

    assert "n0 many" in found
    assert "research 5" in found
    assert "train-a" not in found


def test_a_misspelt_section_is_not_also_told_as_missing(told):
    jobs = f"jobs:\n- {JOB % ''}\n"

    assert told(jobs, base=BASE.replace("queues:", "queus:")).count("jobs.yaml") == 0
    assert figures(told(jobs, base=BASE.replace("queues:", "queus:"))).startswith("base.yaml:6 queus")


def test_entries_of_a_misspelt_section_are_not_told_as_unknown(told):
    other = (JOB % "").replace("research", "elsewhere")

    assert figures(told(f"queus: [{{name: elsewhere}}]\njobs:\n- {other}\n")) == ("jobs.yaml:1 queus queues")


def test_without_a_time_of_the_snapshot_no_time_is_called_wrong(told):
    assert figures(told(f"jobs:\n- {JOB % ''}\n", base=BASE.replace("2026-11-20T12:00:00Z", "soon"))) == (
        "base.yaml:2 soon 2026-11-20T12:00:00Z"
    )


def test_problems_come_in_the_order_of_files_and_lines(told):
    jobs = f"jobs:\n- {JOB % 'user: 5'}\n- {{}}\n"

    lines = told(
        jobs, base=BASE.replace("research}\n", "research, quota: 5}\n").replace("{name: n1", "{nam: n1")
    )

    places = [line.partition(": ")[0] for line in lines.splitlines() if not line.startswith(" ")]
    assert places == [
        *("base.yaml:5", "base.yaml:5", "base.yaml:7", "base.yaml:8"),
        *("jobs.yaml:2", "jobs.yaml:3", "jobs.yaml:3", "jobs.yaml:3"),
    ]


def test_problems_of_several_unreadable_files_are_told_together(put, tmp_path):
    put(a__yaml="a: [", b__json="{", c__yaml=BASE)
    (tmp_path / "d.yaml").symlink_to(tmp_path / "nowhere.yaml")

    with pytest.raises(BadInputError) as caught:
        load_snapshot(".")

    assert [problem.place for problem in caught.value.problems] == ["a.yaml:2", "b.json:1", "d.yaml"]


def test_places_begin_with_the_path_that_was_given(put, tmp_path):
    put(s__yaml="taken_at: soon\n")

    for source in (str(tmp_path), str(tmp_path / "s.yaml")):
        with pytest.raises(BadInputError) as caught:
            load_snapshot(source)

        assert f"{tmp_path}/s.yaml:1" in [problem.place for problem in caught.value.problems]


def test_a_snapshot_of_the_end_of_time_has_no_time_ahead(put):
    put(s__yaml=BASE.replace("taken_at: 2026-11-20T12:00:00Z", "taken_at: 9999-12-31T23:00:00Z"))

    with pytest.raises(BadInputError, match="expected a time before the year 9000"):
        load_snapshot(".")


def test_more_problems_than_are_readable_are_cut_short(monkeypatch, told):
    monkeypatch.setattr(build_snapshot, "MOST_PROBLEMS", 3)

    found = told("jobs:\n" + "- {}\n" * 100)

    assert found.count("\n") == 3
    assert found.startswith(".: there are more problems than")
