"""The public API: seven functions that do what the commands do, files of plans, and the nouns of both."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

import gpuplan
from gpuplan.planner import api
from gpuplan.planner.schemas import field_docstrings
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "scenarios" / "quickstart"
ARRIVALS = ROOT / "scenarios" / "arrivals"
HEAVY = ("numpy", "pandas", "ortools", "pulp", "highspy", "pydantic", "rich", "jinja2", "yaml", "click")
NOUNS = [name for name in gpuplan.__all__ if hasattr(getattr(gpuplan, name), "model_fields")]
FUNCTIONS = ("load_snapshot", "load_policy", "plan", "verify", "explain", "whatif", "simulate")


def printed(*words):
    """The document that a command prints."""
    done = run_command([*words, "--json"], folder=ROOT)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def as_document(noun):
    return json.loads(noun.model_dump_json())


@pytest.fixture(scope="module")
def snapshot():
    return gpuplan.load_snapshot(QUICKSTART)


@pytest.fixture(scope="module")
def policy():
    return gpuplan.load_policy(QUICKSTART)


@pytest.fixture
def plan(snapshot, policy):
    return gpuplan.plan(snapshot, policy, solver="greedy")


def refused(message, function, *arguments, **options):
    with pytest.raises(gpuplan.BadInputError) as raised:
        function(*arguments, **options)
    assert message in str(raised.value)


class TestModule:
    def test_import_loads_nothing_heavy(self):
        script = f"import sys, gpuplan; print([name for name in {HEAVY} if name in sys.modules])"
        shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert shown.stdout == "[]\n"

    @pytest.mark.slow
    def test_reading_loads_no_solver(self):
        script = (
            f"import sys, gpuplan; gpuplan.load_snapshot({str(QUICKSTART)!r})\n"
            "print([name for name in ('numpy', 'pandas', 'ortools', 'highspy') if name in sys.modules])"
        )
        shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert shown.stdout == "[]\n"

    @pytest.mark.parametrize("name", gpuplan.__all__)
    def test_every_name_is_there_and_documented(self, name):
        assert inspect.getdoc(getattr(gpuplan, name))
        assert name in dir(gpuplan)

    @pytest.mark.parametrize("name", NOUNS)
    def test_every_field_of_a_noun_says_what_it_holds(self, name):
        noun = getattr(gpuplan, name)

        assert noun.model_fields.keys() - field_docstrings(noun).keys() == set()

    def test_the_functions_are_those_promised(self):
        assert set(FUNCTIONS) <= set(gpuplan.__all__)

    def test_names_are_sorted_and_none_is_missing(self):
        assert gpuplan.__all__ == sorted(gpuplan.__all__)
        defined = {name for name, each in vars(api).items() if inspect.isfunction(each)}
        assert defined == {name for name in gpuplan.__all__ if inspect.isfunction(getattr(gpuplan, name))}

    def test_type_checkers_find_each_noun_where_it_is_loaded_from(self):
        [block] = [node for node in ast.parse(inspect.getsource(gpuplan)).body if isinstance(node, ast.If)]
        seen = {
            (found.module.removeprefix("gpuplan."), alias.name)
            for found in block.body
            if found.module.startswith("gpuplan.")
            for alias in found.names
        }

        assert seen == {(home, name) for home, names in gpuplan._HOMES.items() for name in names}

    def test_what_is_not_there_is_no_attribute(self):
        with pytest.raises(AttributeError, match="module 'gpuplan' has no attribute 'plam'"):
            _ = gpuplan.plam

    def test_the_signatures_are_these(self):
        """What changes here changes for all programs that call it: CHANGELOG.md says so."""
        assert {name: list(inspect.signature(getattr(gpuplan, name)).parameters) for name in FUNCTIONS} == {
            "load_snapshot": ["source", "strict"],
            "load_policy": ["source"],
            "plan": [
                "snapshot",
                "policy",
                "time_limit",
                "solver",
                "stop_gap",
                "deterministic",
                "seed",
                "after",
                "watch",
            ],
            "verify": ["plan", "snapshot"],
            "explain": ["plan", "name"],
            "whatif": [
                "snapshot",
                "scenarios",
                "policy",
                "time_limit",
                "solver",
                "stop_gap",
                "deterministic",
                "seed",
                "processes",
            ],
            "simulate": [
                "snapshot",
                "policy",
                "arrivals",
                "solver",
                "every",
                "min_interval",
                "max_interval",
                "duration",
                "epochs",
                "skip",
                "submit_for",
                "load",
                "estimates",
                "outages",
                "checkpoint_every",
                "time_limit",
                "deterministic",
                "seed",
                "processes",
            ],
        }


class TestReading:
    def test_a_directory_and_its_document_are_the_same_snapshot(self, snapshot):
        document = {}
        for name in ("cluster", "queues", "jobs"):
            document |= yaml.safe_load((QUICKSTART / f"{name}.yaml").read_text())

        assert gpuplan.load_snapshot(document) == snapshot

    def test_a_document_is_judged_as_a_file_is(self):
        document = {
            "taken_at": "2026-11-20T12:00:00Z",
            "cluster": [{"name": "n0", "gpus": {"model": "A10", "count": 1}, "cpus": 8, "memory_mib": 1}],
            "queues": [{"name": "all"}],
            "jobs": [
                {"name": "a", "queue": "al", "submitted_at": "2026-11-20T11:00:00Z"},
                {"name": "b", "queue": "all"},
            ],
        }

        with pytest.raises(gpuplan.BadInputError) as raised:
            gpuplan.load_snapshot(document)

        assert [problem.place for problem in raised.value.problems] == ["snapshot"] * 2
        assert "job 'b' lacks field 'submitted_at'" in str(raised.value)
        assert "job 'a' is in queue 'al'" in str(raised.value)

    def test_the_policy_is_that_of_a_file_a_directory_or_the_default(self, policy, tmp_path):
        assert gpuplan.load_policy(QUICKSTART / "policy.yaml") == policy
        assert gpuplan.load_policy() == gpuplan.load_policy(tmp_path) == gpuplan.Policy()
        assert gpuplan.load_policy({"solvers": []}).solvers == ()

    def test_a_wrong_policy_is_refused(self):
        refused("policy: the policy has", gpuplan.load_policy, {"solver": []})

    def test_places_lost_are_an_error_only_if_strict(self):
        damaged = ROOT / "scenarios" / "damaged-cluster"

        assert gpuplan.plan(gpuplan.load_snapshot(damaged), solver="greedy").findings
        with pytest.raises(gpuplan.BadInputError):
            gpuplan.load_snapshot(damaged, strict=True)


class TestPlan:
    def test_it_is_the_plan_of_the_command(self, snapshot, policy):
        assert gpuplan.plan(snapshot, policy).plan_id == printed("plan", QUICKSTART)["plan_id"]

    def test_options_are_those_of_the_command(self, snapshot):
        found = gpuplan.plan(
            snapshot, time_limit="500ms", solver="cpsat", stop_gap=0.5, deterministic=True, seed=3
        )

        assert found.policy.budget.time_limit_ms == 500
        assert found.policy.budget.stop_gap == 0.5
        assert found.policy.budget.mode == "deterministic"
        assert found.policy.solvers == ("cpsat",)
        assert found.seed == 3

    def test_the_search_can_be_watched(self, snapshot, policy):
        seen = []

        found = gpuplan.plan(snapshot, policy, watch=seen.append)

        assert isinstance(seen[0], gpuplan.Milestone)
        assert seen[-1].objective == found.solution.objective

    @pytest.mark.slow
    def test_the_plan_before_is_kept_to(self):
        folder = ROOT / "scenarios" / "maintenance-window"
        snapshot, policy = gpuplan.load_snapshot(folder), gpuplan.load_policy(folder)
        before = gpuplan.plan(snapshot, policy)
        promised = {each.job: each.start for each in before.planned if each.promised}

        after = gpuplan.plan(snapshot, policy, after=before)

        assert promised
        assert {each.job: each.start for each in after.planned if each.promised} == promised
        assert any(job.promise for job in after.snapshot.jobs)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"solver": "gurobi"}, "solver: expected one of auto, milp, cpsat, greedy, found 'gurobi'."),
            ({"stop_gap": 5}, "stop_gap: expected a fraction from 0 to 1, 0.01 being 1 %, found 5."),
            (
                {"time_limit": "soon"},
                "time_limit: expected a duration such as 90s, 10m or 1h30m, found 'soon'.",
            ),
        ],
    )
    def test_an_argument_that_cannot_be_is_refused(self, snapshot, options, message):
        refused(message, gpuplan.plan, snapshot, **options)

    def test_its_file_is_read_by_the_commands(self, plan, tmp_path):
        path = tmp_path / "plan.json"

        gpuplan.save_plan(plan, path)

        assert gpuplan.load_plan(path) == plan
        assert printed("verify", path, QUICKSTART)["verified"]

    def test_an_edited_file_is_refused(self, plan, tmp_path):
        path = tmp_path / "plan.json"
        gpuplan.save_plan(plan, path)
        path.write_text(path.read_text().replace("train-base", "train-best"))

        with pytest.raises(gpuplan.TamperedError):
            gpuplan.load_plan(path)


class TestVerify:
    def test_it_says_what_the_command_says(self, plan, snapshot, tmp_path):
        gpuplan.save_plan(plan, tmp_path / "plan.json")

        found = gpuplan.verify(plan, snapshot)

        assert found.verified
        said = printed("verify", tmp_path / "plan.json", QUICKSTART)
        assert json.loads(json.dumps(asdict(found))) == {
            name: said[name] for name in said if name != "verified"
        }

    def test_a_plan_that_does_not_earn_what_it_states_is_not_verified(self, plan, snapshot):
        starts_nothing = plan.model_copy(update={"actions": ()})

        found = gpuplan.verify(starts_nothing, snapshot)

        assert not found.verified
        assert (found.objective, found.stated_terms) == (0, plan.solution.terms)

    def test_a_changed_cluster_is_judged_with_what_is_left(self, plan, snapshot):
        gone = snapshot.cluster.model_copy(update={"nodes": snapshot.cluster.nodes[1:]})

        found = gpuplan.verify(plan, snapshot.model_copy(update={"cluster": gone}))

        assert found.source_changed
        assert found.violations[0].rule is gpuplan.Rule.SELECTION
        assert isinstance(found.violations[0], gpuplan.Violation)


class TestExplain:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "noun"),
        [
            ("train-ranker", gpuplan.Explanation),
            ("queue/research", gpuplan.QueueExplanation),
            ("h100-1", gpuplan.NodeExplanation),
        ],
    )
    def test_it_says_what_the_command_says(self, snapshot, policy, name, noun):
        found = gpuplan.explain(gpuplan.plan(snapshot, policy), name)

        assert type(found) is noun
        assert as_document(found) == printed("explain", QUICKSTART, name)

    def test_an_unknown_name_is_refused(self, plan):
        refused("no job, queue or node has the name 'train-rankr'", gpuplan.explain, plan, "train-rankr")


class TestWhatIf:
    @pytest.mark.slow
    def test_it_compares_as_the_command_does(self, snapshot, policy):
        path = QUICKSTART / "scenario.lose-rack.yaml"

        found = as_document(gpuplan.whatif(snapshot, path, policy, solver="greedy"))

        said = printed("whatif", QUICKSTART, path, "--solver", "greedy")
        for trial in (found["base"], said["base"], found["scenarios"][0], said["scenarios"][0]):
            trial["figures"].pop("seconds")
        assert found == said

    @pytest.mark.slow
    def test_scenarios_may_be_nouns_documents_and_files(self, snapshot, policy):
        file = QUICKSTART / "scenario.other-quota.yaml"
        scenarios = [
            gpuplan.Scenario(name="as-it-is"),
            {"name": "one-less", "changes": [{"change": "fail_nodes", "nodes": {"names": ["h100-1"]}}]},
            file,
        ]

        found = gpuplan.whatif(snapshot, scenarios, policy, solver="greedy", processes=2)

        assert [trial.name for trial in found.scenarios] == ["as-it-is", "one-less", "other-quota"]
        assert found.scenarios[0].differences == {}
        assert found.scenarios[1].differences["gpus_total"] == -8

    def test_all_problems_of_all_scenarios_are_told(self, snapshot):
        scenarios = [
            {"name": "a", "changes": [{"change": "fail_nodes", "nodes": {"names": ["h100-9"]}}]},
            {"name": "b", "changs": []},
            {"name": "a"},
        ]

        with pytest.raises(gpuplan.BadInputError) as raised:
            gpuplan.whatif(snapshot, scenarios)

        assert [each.place for each in raised.value.problems] == [f"scenarios[{n}]" for n in range(3)]

    def test_an_argument_that_cannot_be_is_refused(self, snapshot):
        refused("processes: expected a whole number from 1 on", gpuplan.whatif, snapshot, [], processes=0)


class TestSimulate:
    @pytest.mark.slow
    def test_it_replays_as_the_command_does(self):
        snapshot, policy = gpuplan.load_snapshot(ARRIVALS), gpuplan.load_policy(ARRIVALS)
        profile = ARRIVALS / "profile.yaml"

        found = gpuplan.simulate(
            snapshot, policy, arrivals=profile, solver=["greedy", "srpt"], every="1h", duration="2h", seed=1
        )

        options = ["--solver", "greedy", "--solver", "srpt", "--every", "1h", "--for", "2h", "--seed", "1"]
        said = printed("simulate", ARRIVALS, "--arrivals", profile, *options)
        assert [run.name for run in found.runs] == ["greedy", "srpt"]
        for run, other in zip(as_document(found)["runs"], said["runs"], strict=True):
            for epoch in (*run["epochs"], *other["epochs"]):
                epoch.pop("seconds")
            assert run["epochs"] == other["epochs"]
            timed = ("planning_seconds", "planning_seconds_mean", "planning_seconds_max")
            assert {key: run["scores"][key] for key in run["scores"] if key not in timed} == {
                key: other["scores"][key] for key in run["scores"] if key not in timed
            }

    @pytest.mark.slow
    def test_several_policies_have_names_and_tables(self, snapshot, policy):
        policies = {"ours": policy, "default": gpuplan.Policy()}

        found = gpuplan.simulate(snapshot, policies, solver="greedy", every=900, epochs=2)

        assert [run.name for run in found.runs] == ["ours", "default"]
        table = found.epoch_frame()
        assert list(table["run"]) == ["ours", "ours", "default", "default"]
        assert set(found.score_frame()["run"]) == {"ours", "default"}

    @pytest.mark.slow
    def test_epochs_may_be_at_events(self, snapshot):
        found = gpuplan.simulate(
            snapshot, solver="greedy", every="event", min_interval="1m", max_interval="1h", epochs=2
        )

        assert found.at_events
        assert len(found.runs[0].epochs) == 2

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"solver": "fif"}, "solver: 'fif' is none of auto, milp, cpsat, greedy, all-baselines, fifo"),
            ({"solver": []}, "solver: expected at least one solver or baseline, found none."),
            ({"every": 0}, "every: expected a duration of 1s or more, found 0."),
            ({"epochs": 0}, "epochs: expected a whole number from 1 on, found 0."),
            ({"epochs": 1, "duration": "1h"}, "duration and epochs both say when to end"),
            ({"max_interval": "1h"}, 'max_interval is for epochs at events; give every="event" with it.'),
            (
                {"every": "event", "max_interval": 0},
                "max_interval: expected a duration of 1s or more, found 0.",
            ),
            ({"load": 0}, "load: expected a number from 0.001 to 1000, found 0."),
            ({"estimates": 0.5}, "estimates: expected None, or a factor from 1, which is exact, to 1000"),
            ({"policy": {}}, "policy: expected at least one policy, found none."),
            ({"arrivals": "nowhere.csv"}, "nowhere.csv: cannot be read"),
        ],
    )
    def test_an_argument_that_cannot_be_is_refused(self, snapshot, options, message):
        refused(message, gpuplan.simulate, snapshot, **options)
