"""A mistake in one entry of a snapshot's files, told word for word."""

from __future__ import annotations

import pytest

from tests.support.samples.small_document import JOB

NAME = "letters, digits and ._:/@+- only, with a letter or digit at both ends."


TEXT = "a text, in quotes if it reads as anything else."


def test_an_unknown_field_is_told_with_the_one_that_was_meant(told):
    assert told(f"jobs:\n- {JOB % 'prioritiy: 3'}\n") == (
        "jobs.yaml:2: job 'train-a' has unknown field 'prioritiy'.\n"
        "  Known: name, queue, user, priority, weight, request, replicas, gpu_models, node_selector, "
        "tolerations, affinity, preferred_nodes, regions, locality, spread, anti_affinity, datasets, "
        "workload_class, qos, time_slicing, submitted_at, expected_duration, deadline, hard_deadline, "
        "not_before, depends_on, depends_on_at_least, co_start, preemptible, checkpoint_duration, "
        "restart_duration, preemptions, progress, retry, failures, failed_at, held, hold_reason, "
        "checkpoint_storage, "
        "labels, running, promise.\n"
        "  Maybe 'priority' was meant."
    )


def test_a_field_one_level_too_high_is_told_with_its_place(told):
    assert told(f"jobs:\n- {JOB % 'gpus: 8'}\n").endswith("\n  Maybe 'request.gpus' was meant.")


def test_a_field_has_only_the_name_of_documents(told):
    assert told(f"jobs:\n- {JOB % 'request: {cpu_milli: 4000}'}\n") == (
        "jobs.yaml:2: job 'train-a' has unknown field 'cpu_milli' in request.\n"
        "  Known: gpus, gpu_milli, mig, gpu_memory_mib, cpus, memory_mib, disk_mib, resources.\n"
        "  Maybe 'cpus' was meant."
    )


def test_a_field_that_is_missing_is_told_at_its_entry(told):
    assert told("jobs:\n- {name: ok, queue: batch, submitted_at: 2026-11-20T11:00:00Z}\n- name: a\n") == (
        "jobs.yaml:3: job 'a' lacks field 'queue'.\njobs.yaml:3: job 'a' lacks field 'submitted_at'."
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("request: {gpus: eight}", "job 'train-a' has request.gpus = 'eight'; expected a whole number."),
        ("request: {gpus: 1.5}", "job 'train-a' has request.gpus = 1.5; expected a whole number."),
        ("request: {gpus: 129}", "job 'train-a' has request.gpus = 129; expected at most 128."),
        (
            "request: {gpus: 1, gpu_milli: 500}",
            "job 'train-a' in request: expected one of gpus, gpu_milli and mig, found gpus and gpu_milli.",
        ),
        ("request: {cpus: -1}", "job 'train-a' has request.cpus = -1; expected at least 0."),
        (
            "request: {memory_mib: 64GB}",
            (
                "job 'train-a' has request.memory_mib = '64GB'; "
                "expected MiB as an integer, or a quantity such as 64Gi."
            ),
        ),
        ("replicas: 0", "job 'train-a' has replicas = 0; expected at least 1."),
        (
            "replicas: four",
            "job 'train-a' has replicas = 'four'; expected a whole number, or a mapping with min and max.",
        ),
        (
            "replicas: {min: 3, max: 2}",
            "job 'train-a' in replicas: expected min <= max, found min 3 and max 2.",
        ),
        (
            "expected_duration: forever",
            "job 'train-a' has expected_duration = 'forever'; expected a duration such as 90s, 10m or 1h30m.",
        ),
        (
            "expected_duration: 99999999h",
            "job 'train-a' has expected_duration = '99999999h'; expected at most 878400h.",
        ),
        (
            "deadline: 2026-11-20",
            (
                "job 'train-a' has deadline = '2026-11-20'; "
                "expected a time with its zone, such as 2026-11-20T12:00:00Z."
            ),
        ),
        (
            "deadline: soon",
            "job 'train-a' has deadline = 'soon'; expected a time such as 2026-11-20T12:00:00Z.",
        ),
        (
            "user: 1234",
            "job 'train-a' has user = 1234; expected " + TEXT,
        ),
        (
            "user: 'Zoë Q'",
            "job 'train-a' has user = 'Zoë Q'; expected " + NAME,
        ),
        (
            "gpu_models: {'a b': 1}",
            "job 'train-a' has name 'a b' in gpu_models; expected " + NAME,
        ),
        ("preemptible: maybe", "job 'train-a' has preemptible = 'maybe'; expected true or false."),
        ("labels: [a]", "job 'train-a' has labels = a list; expected a mapping."),
        ("tolerations: 5", "job 'train-a' has tolerations = 5; expected a list."),
        (
            "locality: {required: building}",
            (
                "job 'train-a' has locality.required = 'building'; "
                "expected one of 'node', 'nvlink_island', 'rack', 'zone' or 'region'."
            ),
        ),
        (
            "running: {started_at: 2026-11-20T11:30:00Z, replicas: []}",
            "job 'train-a' has running.replicas = an empty list; expected at least 1 entry.",
        ),
        (
            (
                "running: {started_at: 2026-11-20T11:30:00Z, "
                "replicas: [{node: n0, gpus: [{index: 0, profile: 1g.10gb}]}]}"
            ),
            "job 'train-a' lacks field 'start' in running.replicas[0].gpus[0].",
        ),
        (f"user: {'x' * 1000}", f"job 'train-a' has user = '{'x' * 60}'…; expected at most 253 characters."),
        (
            'labels: {a: "x\\ty", b: ["\\e[31m"]}',
            "job 'train-a' has labels.b = a list; expected " + TEXT,
        ),
        (
            'request: {cpus: "\\e[31m"}',
            "job 'train-a' has request.cpus = '\\x1b[31m'; expected a number such as 4, 11.5 or 500m.",
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_was_found_and_expected(told, fields, message):
    assert told(f"jobs:\n\n- {JOB % fields}\n") == f"jobs.yaml:3: {message}"


def test_an_entry_without_a_name_is_told_by_its_number(told):
    assert told(
        f"jobs:\n- {JOB % ''}\n- 5\n- {{name: 7, queue: batch, submitted_at: 2026-11-20T11:00:00Z}}\n"
    ) == (
        "jobs.yaml:3: jobs[1] is 5; expected a mapping.\njobs.yaml:4: jobs[2] has name = 7; expected " + TEXT
    )


def test_a_number_beyond_all_bounds_is_told_and_not_raised(told):
    for fields in (
        "weight: '1e999999999'",
        f"request: {{memory_mib: {'9' * 40}Gi}}",
        "deadline: 9999-12-31T23:59:59-14:00",
    ):
        assert told(f"jobs:\n- {JOB % fields}\n").startswith("jobs.yaml:2: job 'train-a' has ")


def test_a_value_with_countless_faults_is_one_problem(told):
    held = f"running: {{started_at: 2026-11-20T11:30:00Z, replicas: [{'0, ' * 1001}]}}"

    assert told(f"jobs:\n- {JOB % held}\n") == (
        "jobs.yaml:2: job 'train-a' is wrong in 1002 places.\n  `gpuplan schema` prints what is expected."
    )
