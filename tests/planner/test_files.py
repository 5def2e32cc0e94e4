"""Snapshots and policies from files, and back: what is put together, and how mistakes are told."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from build import NOW, cluster, job, node, pool, queue, replica, snapshot
from handmade import plan_of

from planner.models.cluster import Gpu, MigInstance, Taint
from planner.models.errors import BadInputError
from planner.models.job import ResourceRequest, Running
from planner.models.policy import Policy
from planner.models.queue import Quota
from planner.models.snapshot import Snapshot
from planner.planfile import plan_document
from planner.sources import judging
from planner.sources.files import default_policy_path, load_noun, load_policy, load_snapshot, snapshot_text
from planner.sources.scenario_folder import write_scenario

BASE = """
taken_at: 2026-11-20T12:00:00Z
cluster:
- {name: n0, gpus: {model: H100-80GB, count: 8, memory_mib: 81559}, cpus: 96, memory_mib: 768Gi}
- {name: n1, gpus: {model: H100-80GB, count: 8, memory_mib: 81559}, cpus: 96, memory_mib: 768Gi}
queues:
- {name: research}
- {name: batch, parent: research}
"""

NAME = "letters, digits and ._:/@+- only, with a letter or digit at both ends."
TEXT = "a text, in quotes if it reads as anything else."

JOB = "{name: train-a, queue: research, submitted_at: 2026-11-20T11:00:00Z, %s}"


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Put files into the working directory."""
    monkeypatch.chdir(tmp_path)

    def put(**texts):
        for name, text in texts.items():
            (tmp_path / name.replace("__", ".")).write_text(dedent(text))

    return put


@pytest.fixture
def told(put):
    """All problems of a snapshot with these jobs, one text."""

    def told(jobs, base=BASE):
        put(base__yaml=base, jobs__yaml=jobs)
        with pytest.raises(BadInputError) as caught:
            load_snapshot(".")
        return str(caught.value)

    return told


def running(*gpus, on="n0"):
    held = ", ".join(f"{{index: {index}, milli: {milli}}}" for index, milli in gpus)
    return f"running: {{started_at: 2026-11-20T11:30:00Z, replicas: [{{node: {on}, gpus: [{held}]}}]}}"


RICH = snapshot(
    nodes=[
        *cluster(2, zone="z1", rack="7", labels={"team": "blau, «grün»"}, price_per_hour=12.5),
        node("m0", taints=(Taint(key="dedicated", value="x"),), cordoned=True),
        node("c0", gpus=0, cpus=11.5),
        node("g0", model="A100-80GB").model_copy(
            update={
                "gpus": node("g0", model="A100-80GB").gpus.model_copy(
                    update={"details": (Gpu(index=3, mig=(MigInstance(profile="3g.40gb", start=4),)),)}
                )
            }
        ),
    ],
    queues=[queue(nominal=8.5, borrowing=2, lending=0.5), queue("r", parent="q", **{"H100-80GB": 4})],
    jobs=[
        job("run", gpus=2, cpus=1.5, at=[replica("n0", gpus=[0, 1])]),
        job("share", milli=250, queue="r", expected_duration="90s", held=True, weight="500m"),
        job("gang", gpus=8, replicas=(2, 4), deadline=NOW, gpu_models={"H100-80GB": 1, "A100-80GB": 0.3}),
        job("reader", datasets=["d"], qos="burstable", spread={"max": 2}, checkpoint_duration="2m"),
    ],
    pools=(pool("spot", provisioning="5m", interruptions_per_hour=0.5), pool("base", least=1)),
    overcommit={"burstable": {"cpus": 1.5}},
    datasets=[{"name": "e"}, {"name": "d", "zones": {"z1": 0.5}, "elsewhere": 2}],
    rack_power=[{"rack": "7", "zone": "z1", "watts": 9000}],
)


def test_a_snapshot_comes_back_from_its_text(put):
    put(s__json=snapshot_text(RICH), s__yaml=snapshot_text(RICH))

    assert load_snapshot("s.json") == RICH
    assert load_snapshot("s.yaml") == RICH
    assert load_snapshot("s.json").fingerprint() == RICH.fingerprint()


def test_a_snapshot_comes_back_from_a_scenario_folder(tmp_path):
    write_scenario(RICH, tmp_path)

    assert load_snapshot(str(tmp_path)) == RICH


def test_the_text_has_one_line_for_each_entry_of_a_list():
    lines = snapshot_text(RICH).splitlines()

    entries = [json.loads(line.strip().rstrip(",")) for line in lines if line.startswith("    {")]
    assert [entry.get("name", entry.get("rack")) for entry in entries] == [
        *("base", "spot"),
        *("d", "e"),
        "7",
        *("c0", "g0", "m0", "n0", "n1"),
        *("q", "r"),
        *("gang", "reader", "run", "share"),
    ]


def test_the_text_leaves_defaults_out_and_says_its_format():
    text = snapshot_text(snapshot(nodes=[node(gpus=0, cpus=4)], jobs=[]))

    assert text == dedent(
        """\
        {
          "format_version": "1.0",
          "taken_at": "2026-11-20T12:00:00Z",
          "cluster": {"nodes": [
            {"name": "n0", "cpus": 4, "memory_mib": 131072}
          ]},
          "queues": [
            {"name": "q"}
          ],
          "jobs": []
        }
        """
    )


def test_the_text_does_not_depend_on_the_order_of_a_snapshot():
    lists = ("nodes", "pools", "datasets", "rack_power")
    turned = {name: getattr(RICH.cluster, name)[::-1] for name in lists}
    gang = job("gang", gpus=1, replicas=2, at=[replica("n1", gpus=[0]), replica("n0", gpus=[0])])
    world = RICH.model_copy(update={"jobs": (*RICH.jobs[1:], gang)})
    backwards = Running(started_at=gang.running.started_at, replicas=gang.running.replicas[::-1])
    shuffled = world.model_copy(
        update={
            "cluster": world.cluster.model_copy(update=turned),
            "jobs": (gang.model_copy(update={"running": backwards}), *RICH.jobs[:0:-1]),
            "queues": world.queues[::-1],
        }
    )

    assert snapshot_text(shuffled) == snapshot_text(world)
    assert shuffled.canonical().fingerprint() == world.canonical().fingerprint()


def test_the_files_of_a_directory_make_one_snapshot(put):
    put(
        a__yaml="taken_at: 2026-11-20T12:00:00Z\ncluster: {name: alps, nodes: [{name: n1}]}\n",
        b__yml="cluster: [{name: n0}]\n---\nqueues: [{name: q}]\n---\n",
        c__json='{"queues": [{"name": "p"}], "jobs": []}',
    )

    found = load_snapshot(".")

    assert found.cluster.name == "alps"
    assert [node.name for node in found.cluster.nodes] == ["n0", "n1"]
    assert [queue.name for queue in found.queues] == ["p", "q"]


def test_the_sections_of_a_cluster_may_stand_in_several_files(put):
    put(
        a__yaml="taken_at: 2026-11-20T12:00:00Z\nqueues: [{name: q}]\n"
        "cluster: {pools: [{name: b, template: {name: b}, max: 1}], overcommit: {burstable: {cpus: 2}}}\n",
        b__yaml="cluster: [{name: n0, rack: r, pool: a}]\n",
        c__yaml="cluster: {pools: [{name: a, template: {name: a}, max: 1}], datasets: [{name: d}]}\n",
        d__yaml="cluster: {rack_power: [{rack: r, watts: 5}]}\n",
    )

    found = load_snapshot(".").cluster

    assert [pool.name for pool in found.pools] == ["a", "b"]
    assert found.overcommit["burstable"].cpu_milli == 2000
    assert ([one.name for one in found.datasets], [one.watts for one in found.rack_power]) == (["d"], [5])


def test_other_files_of_a_directory_are_passed_over(put, tmp_path):
    others = (
        "policy.yaml",
        "profile.yml",
        "scenario.drain.yaml",
        "plan.json",
        "README.md",
        ".jobs.yaml",
        "run.sh",
    )
    put(base__yaml=BASE, **{name.replace(".", "__"): "not: [a snapshot" for name in others})
    (tmp_path / "more.yaml").mkdir()

    assert [node.name for node in load_snapshot(".").cluster.nodes] == ["n0", "n1"]


def test_one_file_is_read_whatever_its_name(put):
    put(plan__json=snapshot_text(RICH))

    assert load_snapshot("plan.json") == RICH


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(snapshot_text(RICH).encode())))

    assert load_snapshot("-") == RICH


def test_short_forms_are_read(put):
    put(s__yaml=BASE + f"jobs:\n- {JOB % 'replicas: 4, gpu_models: [H100-80GB], request: {gpus: 8}'}\n")

    (found,) = load_snapshot("s.yaml").jobs

    assert (found.gang.minimum, found.gang.maximum, found.gpu_models) == (4, 4, {"H100-80GB": 1000})


def test_a_directory_without_documents_says_what_is_expected(put):
    put(README__md="", policy__yaml="{}")

    with pytest.raises(BadInputError) as caught:
        load_snapshot(".")

    assert str(caught.value) == (
        ".: the directory has no snapshot; expected files named *.yaml, *.yml or *.json.\n"
        "  Not counted are subdirectories and files named plan, policy, profile, scenario."
    )


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


# Typical mistakes, word for word.


def test_an_unknown_field_is_told_with_the_one_that_was_meant(told):
    assert told(f"jobs:\n- {JOB % 'prioritiy: 3'}\n") == (
        "jobs.yaml:2: job 'train-a' has unknown field 'prioritiy'.\n"
        "  Known: name, queue, user, priority, weight, request, replicas, gpu_models, node_selector, "
        "tolerations, affinity, preferred_nodes, regions, locality, spread, anti_affinity, datasets, "
        "workload_class, qos, time_slicing, submitted_at, expected_duration, deadline, hard_deadline, "
        "not_before, depends_on, depends_on_at_least, co_start, preemptible, checkpoint_duration, "
        "restart_duration, preemptions, held, labels, running, promise.\n"
        "  Maybe 'priority' was meant."
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "pools: [{name: spot, template: {name: s}, maximum: 4}]",
            (
                "pool 'spot' has unknown field 'maximum'.\n"
                "  Known: name, template, min, max, provisioning, interruptions_per_hour.\n"
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


def test_a_contradiction_between_sections_of_the_cluster_is_told_at_its_line(told):
    base = BASE.replace("{name: n1,", "{name: n1, pool: sport,")

    assert told("cluster:\n  pools:\n  - {name: spot, template: {name: s}, max: 2}\n", base=base) == (
        "base.yaml:5: node 'n1' is of pool 'sport', which is no pool of the cluster.\n"
        "  Known: spot.\n"
        "  Maybe 'spot' was meant."
    )


def test_a_wrong_pool_calls_no_node_wrong(told):
    base = BASE.replace("{name: n1,", "{name: n1, pool: base,")
    pools = "cluster:\n  pools: [{name: spot, template: {name: s}, max: 2}, {name: base}]\n"

    assert told(pools, base=base) == (
        "jobs.yaml:2: pool 'base' lacks field 'max'.\njobs.yaml:2: pool 'base' lacks field 'template'."
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


def test_an_unknown_queue_is_told_with_the_one_that_was_meant(told):
    assert told("jobs:\n- name: a\n  queue: reserch\n  submitted_at: 2026-11-20T11:00:00Z\n") == (
        "jobs.yaml:3: job 'a' is in queue 'reserch', which is no queue of the snapshot.\n"
        "  Known: batch, research.\n"
        "  Maybe 'research' was meant."
    )


def test_an_unoffered_profile_is_told_with_those_on_offer(told):
    assert told(f"jobs:\n- {JOB % 'request: {mig: {2g.10gb: 1}}'}\n") == (
        "jobs.yaml:2: job 'train-a' asks for profile '2g.10gb', which no GPU model in the cluster offers.\n"
        "  Offered: 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb (H100-80GB).\n"
        "  Maybe '2g.20gb' was meant."
    )


def test_a_second_entry_of_a_name_is_told_with_the_first(told):
    assert told(f"jobs:\n- {JOB % ''}\n", base=BASE + f"jobs:\n- {JOB % ''}\n") == (
        "jobs.yaml:2: job 'train-a' is given a second time; expected each job once.\n"
        "  First given at base.yaml:10."
    )


def test_a_gpu_held_twice_is_told_with_both_jobs(told):
    first, second = JOB % running((3, 1000)), (JOB % running((3, 500))).replace("train-a", "train-b")

    assert told(f"jobs:\n- {first}\n- {second}\n") == (
        "jobs.yaml:3: job 'train-b' holds gpu 3 of node 'n0', which is then held 1.5 times; "
        "expected at most once. Held by train-a, train-b.\n"
        "  First given at jobs.yaml:2."
    )


def test_a_cycle_of_queues_is_printed(told):
    assert told("jobs: []", base=BASE.replace("{name: research}", "{name: research, parent: batch}")) == (
        "base.yaml:8: queue 'batch' is above itself: batch -> research -> batch; expected a tree.\n"
        "  Take the parent away from one of these queues."
    )


def test_a_section_given_twice_is_told_with_the_first(told):
    assert told("taken_at: 2026-11-20T13:00:00Z") == (
        "jobs.yaml:1: the snapshot has taken_at a second time; expected it once.\n"
        "  First given at base.yaml:2."
    )


def test_an_unknown_section_is_told_with_the_one_that_was_meant(told):
    assert told("jobs: []\njob: []") == (
        "jobs.yaml:2: the snapshot has unknown section 'job'.\n"
        "  Known: format_version, taken_at, cluster, queues, jobs, finished.\n"
        "  Maybe 'jobs' was meant."
    )


def test_an_unknown_field_of_the_cluster_is_told(told):
    assert told("cluster:\n  nods: []") == (
        "jobs.yaml:2: the cluster has unknown field 'nods'.\n"
        "  Known: name, nodes, pools, overcommit, datasets, rack_power, reservations, tariffs.\n"
        "  Maybe 'nodes' was meant."
    )


@pytest.mark.parametrize("source", [".", "my-plan.json"])
def test_a_plan_is_told_once_as_one_whatever_its_name(put, source):
    plan = plan_document(plan_of(snapshot(jobs=[job()])))
    put(my_plan__json=json.dumps(plan), base__yaml=BASE)
    Path("my_plan.json").rename("my-plan.json")

    with pytest.raises(BadInputError) as caught:
        load_snapshot(source)

    assert str(caught.value) == (
        "my-plan.json:1: the document is a plan, not a snapshot; see it with `gpuplan show my-plan.json`.\n"
        "  In a snapshot's directory, name it plan.json: files of that name are passed over."
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
            (
                "jobs.yaml:1: the document is a list; expected a mapping with some of the sections "
                "format_version, taken_at, cluster, queues, jobs, finished."
            ),
        ),
        (
            "# later",
            (
                "jobs.yaml:1: the file is empty; expected a mapping with some of the sections "
                "format_version, taken_at, cluster, queues, jobs, finished."
            ),
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


def test_wrong_entries_do_not_hide_what_is_wrong_between_the_others(told):
    other = (JOB % "").replace("train-a", "b").replace("research", "nowhere")

    found = told(f"jobs:\n- {JOB % 'priority: high'}\n- {other}\n")

    assert "jobs.yaml:2: job 'train-a' has priority = 'high'" in found
    assert "jobs.yaml:3: job 'b' is in queue 'nowhere'" in found


def test_wrong_entries_are_not_taken_for_missing_ones(told):
    jobs = f"jobs:\n- {JOB % running((0, 1000))}\n"

    found = told(
        jobs, base=BASE.replace("cpus: 96", "cpus: many").replace("research}", "research, quota: 5}")
    )

    assert "node 'n0' has cpus = 'many'" in found
    assert "queue 'research' has quota = 5" in found
    assert "train-a" not in found


def test_a_misspelt_section_is_not_also_told_as_missing(told):
    jobs = f"jobs:\n- {JOB % ''}\n"

    assert told(jobs, base=BASE.replace("queues:", "queus:")).count("jobs.yaml") == 0
    assert told(jobs, base=BASE.replace("queues:", "queus:")).startswith(
        "base.yaml:6: the snapshot has unknown section 'queus'."
    )


def test_entries_of_a_misspelt_section_are_not_told_as_unknown(told):
    other = (JOB % "").replace("research", "elsewhere")

    assert told(f"queus: [{{name: elsewhere}}]\njobs:\n- {other}\n") == (
        "jobs.yaml:1: the snapshot has unknown section 'queus'.\n"
        "  Known: format_version, taken_at, cluster, queues, jobs, finished.\n"
        "  Maybe 'queues' was meant."
    )


def test_without_a_time_of_the_snapshot_no_time_is_called_wrong(told):
    assert told(f"jobs:\n- {JOB % ''}\n", base=BASE.replace("2026-11-20T12:00:00Z", "soon")) == (
        "base.yaml:2: the snapshot has taken_at = 'soon'; expected a time such as 2026-11-20T12:00:00Z."
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


def test_a_number_beyond_all_bounds_is_told_and_not_raised(told):
    for fields in (
        "weight: '1e999999999'",
        f"request: {{memory_mib: {'9' * 40}Gi}}",
        "deadline: 9999-12-31T23:59:59-14:00",
    ):
        assert told(f"jobs:\n- {JOB % fields}\n").startswith("jobs.yaml:2: job 'train-a' has ")


def test_more_problems_than_anybody_reads_are_cut_short(monkeypatch, told):
    monkeypatch.setattr(judging, "MOST_PROBLEMS", 3)

    found = told("jobs:\n" + "- {}\n" * 100)

    assert found.count("\n") == 3
    assert found.startswith(".: there are more problems than")


def test_a_value_with_countless_faults_is_one_problem(told):
    held = f"running: {{started_at: 2026-11-20T11:30:00Z, replicas: [{'0, ' * 1001}]}}"

    assert told(f"jobs:\n- {JOB % held}\n") == (
        "jobs.yaml:2: job 'train-a' is wrong in 1002 places.\n  `gpuplan schema` prints what is expected."
    )


def test_a_policy_is_read_with_its_own_names(put):
    put(policy__yaml="weights: {basis: job}\nbudget: {time_limit: 1s}\nsolvers: [cpsat]\n")

    found = load_policy("policy.yaml")

    assert (found.weights.basis, found.budget.time_limit_ms, found.solvers) == ("job", 1000, ("cpsat",))


def test_without_a_file_the_policy_is_the_default():
    assert load_policy(None) == Policy()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "policy.yaml: the file is empty; expected one policy, a mapping ({} is all defaults)."),
        (
            "{}\n---\n{}",
            "policy.yaml: the file has 2 documents; expected one policy, a mapping ({} is all defaults).",
        ),
        ("[]", "policy.yaml:1: the policy is an empty list; expected a mapping."),
        (
            "budget: {time_limit: 400d}",
            "policy.yaml:1: the policy has budget.time_limit = '400d'; expected at most 8784h.",
        ),
        (
            "budget: {time_limit: 99999999}",
            "policy.yaml:1: the policy has budget.time_limit = 99999999; expected at most 8784h.",
        ),
        (
            "drift: loose\nsolvers: [cplex]",
            "policy.yaml:2: the policy has solvers[0] = 'cplex'; expected one of 'milp', 'cpsat' or 'cbc'.",
        ),
        ("time_limit: 10s", "Maybe 'budget.time_limit' was meant."),
        ("pools: {horizon: 0s}", "policy.yaml:1: the policy has pools.horizon = '0s'; expected at least 1s."),
        (
            "profiles: {serve: tight}",
            (
                "policy.yaml:1: the policy has profiles.serve = 'tight'; "
                "expected one of 'pack', 'spread' or 'balanced'."
            ),
        ),
        (
            "prices: {interference: [{classes: [a], points: 5}]}",
            (
                "policy.yaml:1: the policy has prices.interference[0].classes = a list; "
                "expected at least 2 entries."
            ),
        ),
        (
            "prices: {interference: [{classes: [a, b, c], points: 5}]}",
            (
                "policy.yaml:1: the policy has prices.interference[0].classes = a list; "
                "expected at most 2 entries."
            ),
        ),
        ("disruption: {pre_empt: false}", "Maybe 'preempt' was meant."),
    ],
)
def test_a_wrong_policy_is_told(put, text, message):
    put(policy__yaml=text)

    with pytest.raises(BadInputError) as caught:
        load_policy("policy.yaml")

    assert message in str(caught.value)


def test_any_noun_is_read_and_told_by_its_own_name(put):
    put(quota__yaml="nominal: x", request__yaml="gpus: x")

    for name, noun in (("quota", Quota), ("resource request", ResourceRequest)):
        with pytest.raises(BadInputError, match=f": the {name} has "):
            load_noun(f"{name.split()[-1]}.yaml", noun)


def test_a_directory_may_have_its_own_policy(put):
    put(base__yaml=BASE)
    assert default_policy_path(".") is None
    assert default_policy_path("base.yaml") is None
    assert default_policy_path("-") is None

    put(policy__yml="{}")
    assert default_policy_path(".") == "policy.yml"

    put(policy__json="{}")
    with pytest.raises(BadInputError, match=r"has 2 policies: policy\.json, policy\.yml; expected one"):
        default_policy_path(".")


def test_a_production_size_snapshot_is_read_in_about_a_second(put):
    big = snapshot(
        nodes=cluster(1523, rack="r1"),
        jobs=[
            job(f"j{number}", milli=500, cpus=11.3, memory_gib=4, gpu_models={"H100-80GB": 1})
            for number in range(8000)
        ],
    )
    put(s__json=snapshot_text(big))

    before = time.process_time()
    found = load_snapshot("s.json")
    seconds = time.process_time() - before

    assert found == big
    assert seconds < 5, "five times what it takes on an idle machine"


def test_what_the_loader_returns_is_canonical(put):
    put(s__yaml=BASE)

    found = load_snapshot("s.yaml")

    assert found == found.canonical()
    assert isinstance(found, Snapshot)
