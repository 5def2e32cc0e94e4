"""Files to deploy name metrics and options that there are, and are accepted by the tools they are for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from gpuplan.planner.cli.commands.run import run_command
from tests.support.output.metric_names import exported, full_exposition, grouped, named

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
RULES = [
    rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD = json.loads((DEPLOY / "grafana" / "gpuplan.json").read_text(encoding="utf-8"))
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    },
}
OF_PROMETHEUS = {"instance", "job"}
REQUIRED = {
    "GpusSaturated",
    "GpusIdle",
    "JobsWaitLong",
    "JobsFail",
    "CostRises",
    "QueueOverQuota",
    "ManyPreemptions",
}


def exported_now():
    return exported(full_exposition().text())


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_each_expression_names_metrics_and_labels_that_are_exported(name):
    expression, there = EXPRESSIONS[name], exported_now()
    series = named(expression)

    assert series
    for metric, labels in series:
        assert metric in there
        assert labels <= there[metric]
    known = set().union(*(there[metric] for metric, _ in series))
    assert grouped(expression) <= known | OF_PROMETHEUS


def test_the_seven_alerts_are_shipped_and_each_is_tested():
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
    fired = {
        case["alertname"] for test in tests for case in test["alert_rule_test"] if case.get("exp_alerts")
    }

    assert {rule["alert"] for rule in RULES} >= REQUIRED
    assert fired == {rule["alert"] for rule in RULES}


def test_labels_that_summaries_print_are_kept_by_their_expressions():
    for rule in RULES:
        printed = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert not printed & grouped(rule["expr"])


@pytest.fixture
def promtool():
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return found


def test_prometheus_finds_no_fault_with_the_metrics(promtool):
    text = full_exposition().text()

    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_prometheus_can_parse_every_query_of_the_dashboard(promtool, tmp_path):
    queries = (target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_alerts_fire_when_they_should(promtool):
    done = subprocess.run(
        [promtool, "test", "rules", "alerts_test.yaml"],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_of_the_dashboard_do_not_overlap_and_each_has_a_unit():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["fieldConfig"]["defaults"]["unit"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_unit_is_one_that_systemd_takes():
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")

    done = subprocess.run(
        [systemd, "verify", DEPLOY / "systemd" / "gpuplan.service"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def words_of_the_unit():
    unit = (DEPLOY / "systemd" / "gpuplan.service").read_text(encoding="utf-8")
    return re.search(r"^ExecStart=\S+ gpuplan (.*)$", unit, re.MULTILINE)[1].split()


def words_of_the_container():
    file = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    return json.loads(re.search(r"^CMD (.*)$", file, re.MULTILINE)[1])


@pytest.mark.parametrize("words", [words_of_the_unit, words_of_the_container])
def test_commands_have_options_that_there_are(words):
    name, *rest = words()

    parsed = run_command.make_context(name, list(rest)).params

    assert (name, parsed["source"], parsed["applies"]) == ("run", "/etc/gpuplan", True)


def test_the_container_file_is_made_of_known_instructions():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    known = {
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }

    assert {line.split()[0] for line in lines} == known
    assert lines[-1].startswith("CMD")
    assert json.loads(next(line for line in lines if line.startswith("ENTRYPOINT")).split(" ", 1)[1]) == [
        "gpuplan"
    ]
