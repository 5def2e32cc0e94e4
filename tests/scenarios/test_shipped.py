import os
import re
from collections import Counter
from pathlib import Path

import pytest

from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.plan.actions import Start
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.validation.damage import survey_damage
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.sources.files import default_policy_path, load_policy, load_snapshot, scenario_files
from gpuplan.planner.sources.synthetic import generate_snapshot, load_workload_profile
from gpuplan.planner.sources.traces.openb import read_openb

pytestmark = pytest.mark.slow

SCENARIOS = Path(__file__).parents[2] / "scenarios"
PRODUCTION = SCENARIOS / "production"
DOCS = Path(__file__).parents[2] / "docs" / "scenarios.md"
SEED = 7
FOLDERS = sorted(path.name for path in SCENARIOS.iterdir() if path.is_dir())
TRACE = os.environ.get("GPUPLAN_OPENB_DIR")


@pytest.fixture(scope="module")
def profile():
    return load_workload_profile(PRODUCTION / "profile.yaml")


@pytest.fixture(scope="module")
def production(profile):
    return generate_snapshot(profile, seed=SEED)


@pytest.fixture(scope="module")
def quickstart():
    snapshot = load_snapshot(str(SCENARIOS / "quickstart"))
    policy = load_policy(default_policy_path(str(SCENARIOS / "quickstart")))
    return plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_scenario_loads_and_what_runs_in_it_breaks_no_rule(folder):
    source = str(SCENARIOS / folder)

    snapshot, policy = survey_damage(load_snapshot(source)).sound, load_policy(default_policy_path(source))

    assert default_policy_path(source)
    assert snapshot.running_placements
    assert not verify(snapshot, policy, snapshot.running_placements).violations


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_scenario_says_in_two_sentences_what_it_shows(folder):
    title, first, *_ = (SCENARIOS / folder / "README.md").read_text().split("\n\n")

    assert title == f"# {folder}"
    assert first.count(".") == 2
    assert "\nLook for " in first


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_scenario_is_listed_in_the_docs(folder):
    assert f"](../scenarios/{folder}/README.md)" in DOCS.read_text()


def test_the_documents_that_the_docs_show_are_read(tmp_path):
    shown = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    paths = [tmp_path / str(number) / "document.yaml" for number in range(len(shown))]
    for path, text in zip(paths, shown, strict=True):
        path.parent.mkdir()
        path.write_text(text)

    complete, limited, calendar, profile = paths

    assert ActionKind.SHRINK not in load_snapshot(str(limited.parent)).cluster.can
    assert len(load_snapshot(str(complete.parent)).running_placements) == 1
    cluster = load_snapshot(str(calendar.parent)).cluster
    assert (len(cluster.reservations), len(cluster.tariffs)) == (2, 1)
    assert len(generate_snapshot(load_workload_profile(profile), seed=0).jobs) == 42


def test_the_generator_makes_the_shipped_files_to_the_byte(production):
    shipped = {name: (PRODUCTION / name).read_text() for name in scenario_files(production)}

    assert scenario_files(production) == shipped


def test_the_production_cluster_has_the_published_size(production):
    nodes = production.cluster.nodes

    assert len(nodes) == 1523
    assert Counter(node.gpu_model for node in nodes if node.gpus) == {
        "A10": 2,
        "G2": 549,
        "G3": 39,
        "P100": 134,
        "T4": 404,
        "V100M16": 55,
        "V100M32": 30,
    }
    assert sum(node.gpu_count for node in nodes) == 6212


def test_the_production_jobs_have_the_published_shapes_and_some_are_gangs(profile, production):
    single = [job for job in production.jobs if job.gang.maximum == 1]
    gangs = [job for job in production.jobs if job.gang.maximum > 1]

    assert len(single) == 8152
    assert len({job.request.model_dump_json() for job in single}) == 151
    assert sum(job.request.total_gpu_milli for job in single) == 6_086_800
    assert len(gangs) == 55
    assert {job.gang.maximum for job in gangs} == {2, 4, 8, 16}
    assert len(profile.nodes) == 27


def test_production_wants_more_than_there_is_and_half_of_it_runs(production):
    running = [job for job in production.jobs if job.running]
    wanted = sum(job.request.total_gpu_milli * job.gang.maximum for job in production.jobs)
    held = sum(job.request.total_gpu_milli * job.gang.maximum for job in running)

    assert 1.15 * 6_212_000 < wanted < 1.2 * 6_212_000
    assert 0.5 * 6_212_000 <= held < 0.51 * 6_212_000
    readme = " ".join((PRODUCTION / "README.md").read_text().split())
    waiting = len(production.jobs) - len(running)
    assert f"{len(running):,} jobs that run on half of them, and {waiting:,} that wait" in readme


@pytest.mark.skipif(not TRACE, reason="GPUPLAN_OPENB_DIR names no folder with the openb trace")
def test_the_shipped_figures_are_those_of_the_trace(profile):
    trace = read_openb(
        Path(TRACE) / "openb_node_list_all_node.csv", Path(TRACE) / "openb_pod_list_default.csv"
    )

    def node_figures(node):
        return node.gpus, node.cpu_milli, node.memory_mib

    assert Counter({node_figures(shape.node): shape.count for shape in profile.nodes}) == Counter(
        node_figures(node) for node in trace.cluster.nodes
    )
    assert Counter(
        {shape.request.model_dump_json(): shape.count for shape in profile.jobs if shape.gang.maximum == 1}
    ) == Counter(job.request.model_dump_json() for job in trace.jobs)


def test_quickstart_starts_what_its_comments_say(quickstart):
    started = {action.job: action for action in quickstart.actions if isinstance(action, Start)}
    where = {
        name: {(replica.node, held.index) for replica in action.after.replicas for held in replica.gpus}
        for name, action in started.items()
    }

    assert set(started) == {"train-base", "distill", "notebook", "captioner", "tokenize"}
    assert {node for node, _ in where["train-base"]} == {"h100-2", "h100-3"}
    assert {node for node, _ in where["distill"]} == {"h100-1"}
    assert where["notebook"] == where["captioner"]
    assert {replica.node for replica in started["tokenize"].after.replicas}.isdisjoint({"h100-4"})


def test_quickstart_lets_wait_what_its_comments_say(quickstart):
    assert {waiting.job: waiting.reason.code for waiting in quickstart.waiting} == {
        "ablation": ReasonCode.WAITING_FOR_QUOTA,
        "nightly-eval": ReasonCode.HELD,
        "render": ReasonCode.NO_MATCHING_NODE,
        "train-ranker": ReasonCode.RESOURCES,
    }


def test_quickstart_is_solved_to_proven_optimality(quickstart):
    assert quickstart.solution.gap == 0
    assert quickstart.solution.status == "OPTIMAL"
