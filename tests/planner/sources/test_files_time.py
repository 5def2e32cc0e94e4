"""What is about time in documents: from several files, written and read again, mistakes at their lines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.dependency import FinishedJob
from gpuplan.models.health.measurement import Measurement
from gpuplan.planner.sources.files import load_snapshot, snapshot_text, write_scenario
from tests.support.builders.build import NOW, job, replica, snapshot

HOUR = timedelta(hours=1)
BASE = """\
taken_at: 2026-11-20T12:00:00Z
cluster: [{name: n0}]
queues: [{name: q}]
"""


def over(name, hours):
    return FinishedJob(name=name, queue="q", started_at=NOW - hours * HOUR, ended_at=NOW - HOUR)


RICH = snapshot(
    jobs=[
        job(
            "later",
            gpus=1,
            deadline=NOW + 9 * HOUR,
            hard_deadline=True,
            not_before=NOW + HOUR,
            depends_on=[{"job": "over"}, {"job": "runs", "kind": "checkpointed"}],
            depends_on_at_least=1,
            co_start="pair",
            promise={"start": NOW + 2 * HOUR, "replicas": [replica("n1", gpus=[0])]},
        ),
        job("runs", running={"started_at": NOW - HOUR, "kill_at": NOW + HOUR, "replicas": [replica("n0")]}),
    ],
    reservations=[
        {"name": "b", "kind": "maintenance", "count": 1, "cron": "0 8 * * 1", "duration": 60},
        {"name": "a", "nodes": ["n1"], "start": NOW, "duration": 60, "queues": ["q"]},
    ],
    tariffs=[{"name": "peak", "cron": "0 17 * * *", "duration": 3600, "price_per_gpu_hour": 0.5}],
)
SEEN = tuple(Measurement(node="n1", index=index, utilization=50, period=30) for index in (1, 0))
RICH = RICH.model_copy(update={"finished": (over("older", 4), over("over", 3)), "measured": SEEN}).canonical()


def test_all_of_it_is_written_and_read_again(tmp_path):
    (tmp_path / "s.json").write_text(snapshot_text(RICH))
    write_scenario(RICH, tmp_path / "folder")

    for source in ("s.json", "folder"):
        found = load_snapshot(str(tmp_path / source))
        assert found == RICH
        assert found.fingerprint() == RICH.fingerprint()


def test_a_finished_job_has_a_line_of_its_own():
    lines = snapshot_text(RICH).splitlines()

    assert sum('"ended_at"' in line for line in lines) == 2
    assert sum('"utilization"' in line for line in lines) == 2


def test_the_order_of_the_entries_does_not_matter():
    cluster = RICH.cluster.model_copy(
        update={"reservations": RICH.cluster.reservations[::-1], "tariffs": RICH.cluster.tariffs[::-1]}
    )
    sections = {"cluster": cluster, "finished": RICH.finished[::-1], "measured": SEEN}
    turned = RICH.model_copy(update=sections)

    assert snapshot_text(turned) == snapshot_text(RICH)
    assert turned.canonical().fingerprint() == RICH.fingerprint()


def test_lists_may_stand_in_several_files(put):
    one = "duration: 1h, cron: '0 8 * * *'"
    ended = "queue: q, started_at: 2026-11-20T10:00:00Z, ended_at: 2026-11-20T11:00:00Z"
    put(
        base__yaml=BASE,
        a__yaml=f"cluster: {{reservations: [{{name: r2, count: 1, queues: [q], {one}}}]}}\n"
        f"finished: [{{name: b, {ended}}}]\n",
        b__yaml=f"cluster:\n  reservations: [{{name: r1, count: 1, users: [u], {one}}}]\n"
        f"  tariffs: [{{name: t2, price_per_gpu_hour: 1, {one}}}]\n",
        c__yaml=f"cluster: {{tariffs: [{{name: t1, price_per_gpu_hour: 1, {one}}}]}}\n"
        f"finished: [{{name: a, {ended}}}]\n",
    )

    found = load_snapshot(".")

    assert [each.name for each in found.cluster.reservations] == ["r1", "r2"]
    assert [tariff.name for tariff in found.cluster.tariffs] == ["t1", "t2"]
    assert [over.name for over in found.finished] == ["a", "b"]


def entry(section, *more, name="x"):
    """A document with one entry; its fields stand on lines of their own, from the third or second on."""
    lines = (
        [f"cluster:\n  {section}:", f"  - name: {name}"]
        if section != "jobs"
        else ["jobs:", f"  - name: {name}"]
    )
    return "\n".join([*lines, *(f"    {line}" for line in more)]) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            entry("tariffs", "duration: 1h", "price_per_gpu_hour: 1", "cron: 0 25 * * *"),
            (
                "6: tariff 'x' has cron = '0 25 * * *'; "
                "expected a cron expression of five fields such as '0 22 * * 1-5'."
            ),
        ),
        (
            entry("tariffs", "duration: 1h", "price_per_gpu_hour: 1", "cron: 0 0 31 4 *"),
            "6: tariff 'x' has cron = '0 0 31 4 *'; expected a cron expression that some day meets.",
        ),
        (
            entry("tariffs", "duration: 1h", "price_per_gpu_hour: 0", "cron: R * * * *"),
            (
                "5: tariff 'x' has price_per_gpu_hour = 0; expected more than 0.0.\n"
                "6: tariff 'x' has cron = 'R * * * *'; "
                "expected a cron expression of five fields such as '0 22 * * 1-5'."
            ),
        ),
        (
            entry("reservations", "duration: 1h", "start: soon", "count: 1", "queues: [q]"),
            "5: reservation 'x' has start = 'soon'; expected a time such as 2026-11-20T12:00:00Z.",
        ),
        (
            entry("reservations", "duration: 1h", "count: 1", "queues: [q]"),
            "3: reservation 'x': expected one of start and cron, found neither.",
        ),
        (
            entry("reservations", "duration: 1h", "cron: 0 8 * * *", "queues: [q]"),
            "3: reservation 'x': expected one of nodes and count, found neither.",
        ),
        (
            entry("reservations", "duration: 1h", "cron: 0 8 * * *", "node: [n0]", "queues: [q]"),
            (
                "6: reservation 'x' has unknown field 'node'.\n"
                "  Known: start, cron, duration, name, kind, nodes, count, gpu_model, node_selector, queues, "
                "users, job_labels.\n"
                "  Maybe 'nodes' was meant."
            ),
        ),
        (
            "finished:\n- name: x\n  queue: q\n  started_at: 2026-11-20T10:00:00Z\n  outcome: success\n",
            (
                "2: finished job 'x' lacks field 'ended_at'.\n"
                "5: finished job 'x' has outcome = 'success'; expected one of 'succeeded' or 'failed'."
            ),
        ),
        (
            entry(
                "jobs",
                "queue: q",
                "submitted_at: 2026-11-20T11:00:00Z",
                "hard_deadline: true",
                "depends_on:",
                "- job: y",
                "  kind: afterok",
                "- {job: z}",
                "promise: {start: 2026-11-20T13:00:00Z}",
            ),
            (
                "8: job 'x' has depends_on[0].kind = 'afterok'; "
                "expected one of 'started', 'succeeded', 'completed' or 'checkpointed'.\n"
                "10: job 'x' lacks field 'replicas' in promise."
            ),
        ),
        (
            entry(
                "jobs",
                "queue: q",
                "submitted_at: 2026-11-20T11:00:00Z",
                "hard_deadline: true",
                "depends_on_at_least: 3",
                "depends_on:",
                "- job: x",
                "- job: y",
            ),
            (
                "5: job 'x' has hard_deadline = true and no deadline; expected a deadline beside it.\n"
                "6: job 'x' has depends_on_at_least = 3; expected at most 2, "
                "as its depends_on names no more jobs.\n"
                "7: job 'x' waits for itself: x -> x; expected jobs that can start one after the other.\n"
                "  Take one of these dependencies away.\n"
                "9: job 'x' depends on job 'y', which is neither among jobs nor among finished.\n"
                "  Known: none."
            ),
        ),
        (
            "finish: []\n",
            (
                "1: the snapshot has unknown section 'finish'.\n"
                "  Known: format_version, taken_at, cluster, queues, jobs, finished, measured.\n"
                "  Maybe 'finished' was meant."
            ),
        ),
        ("finished: {}\n", "1: the snapshot has finished = an empty mapping; expected a list."),
    ],
)
def test_a_mistake_is_told_at_its_line(told, text, message):
    assert told(text, base=BASE).replace("jobs.yaml:", "") == message


def test_a_job_gets_the_scaling_that_its_like_teach(tmp_path):
    def like(name):
        return f"{{name: {name}, user: ada, queue: q"

    over = "".join(
        f"- {like(f't-{size}-{minute}')}, replicas: {size}, started_at: {started}, "
        f"ended_at: 2026-11-20T08:0{minute}:00Z}}\n"
        for size, started in ((1, "2026-11-20T00:00:00Z"), (2, "2026-11-20T03:00:00Z"))
        for minute in range(3)
    )
    elastic = f"- {like('t-3-0')}, replicas: {{min: 1, max: 2}}, submitted_at: 2026-11-20T11:00:00Z}}\n"
    (tmp_path / "s.yaml").write_text(f"{BASE}jobs:\n{elastic}finished:\n{over}")

    (found,) = load_snapshot(str(tmp_path / "s.yaml")).jobs

    assert found.gang.scaling == {1: 1000, 2: round(1000 * 481 / 301)}
