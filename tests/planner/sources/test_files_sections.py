"""A mistake in a section of a snapshot's files, told word for word."""

from __future__ import annotations

import json

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.explain.job import explain
from gpuplan.planner.sources.files import load_snapshot
from tests.support.builders.build import job, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.oracles.plan_document import plan_document
from tests.support.samples.small_document import BASE

SECTIONS = "format_version, taken_at, cluster, queues, jobs, finished, measured"
A_MAPPING = f"expected a mapping with some of the sections {SECTIONS}."


def test_a_directory_without_documents_says_what_is_expected(put):
    put(README__md="", policy__yaml="{}")

    with pytest.raises(BadInputError) as caught:
        load_snapshot(".")

    assert str(caught.value) == (
        ".: the directory has no snapshot; expected files named *.yaml, *.yml or *.json.\n"
        "  Not counted are subdirectories and files named plan, policy, profile, scenario."
    )


def test_a_section_given_twice_is_told_with_the_first(told):
    assert told("taken_at: 2026-11-20T13:00:00Z") == (
        "jobs.yaml:1: the snapshot has taken_at a second time; expected it once.\n"
        "  First given at base.yaml:2."
    )


def test_an_unknown_section_is_told_with_the_one_that_was_meant(told):
    assert told("jobs: []\njob: []") == (
        "jobs.yaml:2: the snapshot has unknown section 'job'.\n"
        f"  Known: {SECTIONS}.\n"
        "  Maybe 'jobs' was meant."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: 5", "jobs.yaml:1: the snapshot has jobs = 5; expected a list."),
        ("jobs:", "jobs.yaml:1: the snapshot has jobs = null; expected a list."),
        ("cluster: 5", "jobs.yaml:1: the snapshot has cluster.nodes = 5; expected a list."),
        ("format_version: 1.0", "jobs.yaml:1: the snapshot has format_version = 1.0; expected '1.0'."),
        (
            "- a",
            f"jobs.yaml:1: the document is a list; {A_MAPPING}",
        ),
        (
            "# later",
            f"jobs.yaml:1: the file is empty; {A_MAPPING}",
        ),
    ],
)
def test_a_wrong_section_is_told(told, text, message):
    assert told(text) == message


def test_sections_that_are_missing_are_told_at_the_source(put):
    put(s__yaml="jobs: []")

    with pytest.raises(BadInputError) as caught:
        load_snapshot("s.yaml")

    assert str(caught.value) == (
        "s.yaml: the snapshot lacks field 'cluster'.\n"
        "s.yaml: the snapshot lacks field 'queues'.\n"
        "s.yaml: the snapshot lacks field 'taken_at'."
    )


def test_a_plan_given_as_a_source_is_told_once_as_one(put):
    plan = plan_document(plan_of(snapshot(jobs=[job()])))
    put(mine__json=json.dumps(plan))

    with pytest.raises(BadInputError) as caught:
        load_snapshot("mine.json")

    assert str(caught.value) == (
        "mine.json:1: the document is a plan, not a snapshot; see it with `gpuplan show mine.json`."
    )


def test_results_and_other_documents_in_a_directory_are_passed_over_with_a_warning(put, caplog):
    plan = plan_of(snapshot(jobs=[job()]))
    put(base__yaml=BASE)
    before = load_snapshot(".")
    put(
        mine__json=json.dumps(plan_document(plan)),
        diff__json=diff(plan).model_dump_json(),
        explained__json=explain(plan, "a", source=".").model_dump_json(),
        knobs__yaml="weights: {}",
    )

    assert load_snapshot(".") == before
    assert [record.getMessage().removesuffix("; it is passed over.") for record in caplog.records] == [
        "diff.json:1: the document is a result of gpuplan (found 'plan_id', 'epoch', …)",
        "explained.json:1: the document is a result of gpuplan (found 'plan_id', 'epoch', …)",
        "knobs.yaml:1: the document has no section of a snapshot (found 'weights')",
        "mine.json:1: the document is a result of gpuplan (found 'format_version', 'plan_id', …)",
    ]


@pytest.mark.parametrize("document", ["jbos: []", "nodes: [{name: n}]", "weights: {}\nqueus: []"])
def test_a_section_under_a_wrong_name_is_not_passed_over(put, document):
    put(base__yaml=BASE, more__yaml=document)

    with pytest.raises(BadInputError, match="the snapshot has unknown section"):
        load_snapshot(".")


def test_an_unknown_field_of_the_cluster_is_told(told):
    assert told("cluster:\n  nods: []") == (
        "jobs.yaml:2: the cluster has unknown field 'nods'.\n"
        "  Known: name, nodes, pools, overcommit, datasets, rack_power, reservations, tariffs, can.\n"
        "  Maybe 'nodes' was meant."
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "pools: [{name: spot, template: {name: s}, maximum: 4}]",
            (
                "pool 'spot' has unknown field 'maximum'.\n"
                "  Known: name, template, names, min, max, provisioning, interruptions_per_hour, "
                "node_added_at, "
                "node_removed_at.\n"
                "  Maybe 'max' was meant.\n"
                "jobs.yaml:2: pool 'spot' lacks field 'max'."
            ),
        ),
        (
            "pools: [{name: spot, template: {name: s, gpus: {model: A, count: 0}}, max: 4}]",
            "pool 'spot' has template.gpus.count = 0; expected at least 1.",
        ),
        (
            "pools: [{name: spot, template: {name: s}, min: 5, max: 4}]",
            "pool 'spot': expected min <= max, found min 5 and max 4.",
        ),
        (
            "pools: [{name: spot, template: {name: s, pool: base}, max: 4}]",
            "pool 'spot': expected a template in pool spot, found pool base.",
        ),
        ("pools: {name: spot}", "the snapshot has cluster.pools = a mapping; expected a list."),
        ("datasets: [d]", "datasets[0] is 'd'; expected a mapping."),
        (
            "datasets: [{name: d, zone: {}}]",
            (
                "dataset 'd' has unknown field 'zone'.\n"
                "  Known: name, zones, elsewhere, available_at.\n"
                "  Maybe 'zones' was meant."
            ),
        ),
        (
            "datasets: [{name: d, zones: {z: -1}}]",
            "dataset 'd' has zones.z = -1; expected at least 0.0.",
        ),
        ("rack_power: [{rack: r, watts: 0}]", "rack_power[0] has watts = 0; expected at least 1."),
        (
            "rack_power: [{rack: r, kilowatts: 5, watts: 1}]",
            (
                "rack_power[0] has unknown field 'kilowatts'.\n"
                "  Known: rack, zone, region, watts.\n"
                "  Maybe 'watts' was meant."
            ),
        ),
        (
            "overcommit: {burstable: {cpus: 0.9}}",
            "the snapshot has cluster.overcommit.burstable.cpus = 0.9; expected at least 1.",
        ),
        (
            "overcommit: {burstable: {gpus: 2}}",
            (
                "the snapshot has unknown field 'gpus' in cluster.overcommit.burstable.\n"
                "  Known: cpus, memory.\n"
                "  Maybe 'cpus' was meant."
            ),
        ),
        (
            "overcommit: {bursty: {}}",
            (
                "the snapshot has name 'bursty' in cluster.overcommit; "
                "expected one of 'guaranteed', 'burstable' or 'best_effort'."
            ),
        ),
        ("overcommit: 2", "the snapshot has cluster.overcommit = 2; expected a mapping."),
    ],
)
def test_a_mistake_in_a_section_of_the_cluster_is_told(told, section, message):
    assert told(f"cluster:\n  {section}\n") == f"jobs.yaml:2: {message}"


def test_overcommit_may_be_given_once(told):
    once = "cluster: {overcommit: {}}\n"

    assert told(f"{once}---\n{once}") == (
        "jobs.yaml:3: the snapshot has cluster.overcommit a second time; expected it once.\n"
        "  First given at jobs.yaml:1."
    )
