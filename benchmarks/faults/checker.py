"""
What must hold after faults, judged by what a cluster itself says; shares no code with gpuplan.

Truth is read from tables, processes and Slurm's own commands. The audit log is read as JSON lines, and its
chain is computed anew.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

WHOLE: Final = 1000
"""Thousandths of a GPU."""
_FIRST: Final = "0" * 64
_BEGINNING: Final = ("start", "migrate")
_CODES: Final = frozenset({0, 1, 10, 21, 22, -9})
"""Exit codes that a command may have here: docs/plan-format.md."""

LOST, DOUBLED, PART, TWICE = "job lost", "job doubled", "gang part-started", "GPU given twice"
MISSING, WRONG, LEFT, DEFECT = "audit entry missing", "audit entry wrong", "left over", "defect"
UNDONE, VIEW = "not recovered", "cluster seen wrongly"
BAD: Final = (LOST, DOUBLED, PART, TWICE, MISSING, WRONG, LEFT, DEFECT, UNDONE, VIEW)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Held:
    """What one replica has."""

    node: str
    gpus: tuple[tuple[str, int], ...] = ()
    """(GPU, thousandths)."""
    slices: tuple[tuple[str, str], ...] = ()
    """(GPU, MIG instance)."""


@dataclass(frozen=True, slots=True)
class TrueJob:
    """A job as the cluster has it."""

    state: str
    """`waits`, `runs` or `ended`."""
    held: tuple[Held, ...] = ()


@dataclass(slots=True)
class Truth:
    """A cluster, as it says itself."""

    jobs: dict[str, TrueJob]
    performed: frozenset[str]
    """Keys of the actions that were done."""
    begins: Counter[str] = field(default_factory=Counter)
    """How often each job began since the world was made."""
    stops: Counter[str] | None = None
    """How often it stopped, if the cluster counts that."""
    ran_at_first: frozenset[str] = frozenset()
    conflicts: tuple[Finding, ...] = ()
    """What jobs themselves noted while they ran."""
    left: tuple[str, ...] = ()
    """What no command is to leave behind."""
    unplanned: frozenset[str] = frozenset()
    """Jobs that the cluster itself may have begun again."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What users asked for."""

    gangs: dict[str, tuple[int, int]]
    """Least and most replicas of each job."""


def structure(submitted: Submitted, truth: Truth) -> Iterator[Finding]:
    """What must hold at any time, also right after a kill."""
    for name in sorted(submitted.gangs.keys() - truth.jobs.keys()):
        yield Finding(LOST, name)
    for name in sorted(truth.jobs.keys() - submitted.gangs.keys()):
        yield Finding(DOUBLED, f"{name} was never submitted")
    for name, job in sorted(truth.jobs.items()):
        least, most = submitted.gangs.get(name, (0, 0))
        if job.state == "runs" and not least <= len(job.held) <= most:
            yield Finding(PART, f"{name}: {len(job.held)} of {least} to {most} replicas")
        if job.state != "runs" and job.held:
            yield Finding(TWICE, f"{name} {job.state} and holds {job.held}")
    yield from _given_twice(truth)
    yield from _begun_twice(truth)
    yield from truth.conflicts


def _given_twice(truth: Truth) -> Iterator[Finding]:
    given: Counter[tuple[str, str]] = Counter()
    slices: Counter[tuple[str, str, str]] = Counter()
    for job in truth.jobs.values():
        for held in job.held:
            for gpu, milli in held.gpus:
                given[held.node, gpu] += milli
            for gpu, instance in held.slices:
                slices[held.node, gpu, instance] += 1
                given[held.node, gpu] += 1
    for place, milli in sorted(given.items()):
        if milli > WHOLE:
            yield Finding(TWICE, f"{place}: {milli} thousandths")
    yield from (
        Finding(TWICE, f"{place}: {count} times") for place, count in sorted(slices.items()) if count > 1
    )


def _begun_twice(truth: Truth) -> Iterator[Finding]:
    if truth.stops is None:
        return
    for name, job in sorted(truth.jobs.items()):
        open_ = (name in truth.ran_at_first) + truth.begins[name] - truth.stops[name]
        if open_ != (job.state == "runs"):
            yield Finding(
                DOUBLED if open_ > 0 else LOST,
                f"{name} {job.state}: began {truth.begins[name]}, stopped {truth.stops[name]} times",
            )


def audited(audit: Path, truth: Truth) -> Iterator[Finding]:
    """The audit log beside what was done; only once all is recovered."""
    lines, broken = _chain(audit)
    yield from broken
    done: Counter[str] = Counter()
    intended: set[str] = set()
    last: dict[str, dict[str, Any]] = {}
    for line in lines:
        key = f"{line.get('plan_uid')}:{line.get('action')}"
        last[str(line.get("plan_uid"))] = line
        if line["kind"] == "intent":
            intended.add(key)
        elif line.get("outcome") in ("done", "skipped"):
            done[key] += 1
            if key not in intended:
                yield Finding(MISSING, f"{key} is done without an intent")
    for key in sorted(truth.performed - done.keys()):
        yield Finding(MISSING, f"{key} was done, and is not recorded")
    for key in sorted(done.keys() - truth.performed):
        yield Finding(WRONG, f"{key} is recorded, and was not done")
    yield from (
        Finding(WRONG, f"{key} is recorded {count} times") for key, count in done.items() if count > 1
    )
    yield from (
        Finding(MISSING, f"plan {uid} has no end")
        for uid, line in last.items()
        if uid not in ("", "None") and line["kind"] != "end"
    )
    yield from _begins(truth, done)


def _begins(truth: Truth, done: Iterable[str]) -> Iterator[Finding]:
    """Each begin of a job is the one of a recorded action."""
    recorded: Counter[str] = Counter()
    for key in done:
        kind, _, name = key.partition(":")[2].partition("/")
        if kind in _BEGINNING:
            recorded[name] += 1
    for name, count in sorted(truth.begins.items()):
        if name not in truth.unplanned and count > recorded[name]:
            yield Finding(DOUBLED, f"{name} began {count} times by {recorded[name]} recorded actions")


def _chain(audit: Path) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The records, and what is wrong with their chain."""
    content = audit.read_bytes() if audit.exists() else b""
    *lines, tail = content.split(b"\n")
    records, findings, previous = [], [], _FIRST
    if tail:
        findings.append(Finding(LEFT, f"half a line in the audit log: {tail[:40]!r}"))
    for number, line in enumerate(lines, 1):
        record = json.loads(line)
        own = {key: value for key, value in record.items() if key != "hash"}
        text = json.dumps(own, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if (record["sequence"], record["previous"]) != (number, previous):
            findings.append(Finding(MISSING, f"record {number} does not follow the one before"))
        if record["hash"] != hashlib.sha256(text.encode()).hexdigest():
            findings.append(Finding(WRONG, f"record {number} was changed"))
        previous = record["hash"]
        records.append(record)
    return records, findings


def seen(snapshot: dict[str, Any], truth: Truth, *, exactly: bool = True) -> Iterator[Finding]:
    """The snapshot that gpuplan takes beside the truth; unless `exactly`, only how many GPUs of each node."""
    shown: dict[str, Counter[tuple[str, str]]] = {}
    for job in snapshot["jobs"]:
        if "running" in job and job["name"] in truth.jobs:
            shown[job["name"]] = _placed(job["running"]["replicas"])
    true = {name: _counted(job) for name, job in truth.jobs.items() if job.state == "runs"}
    for name in sorted(shown.keys() ^ true.keys()):
        yield Finding(VIEW, f"{name} runs {'in the snapshot' if name in shown else 'on the cluster'} only")
    for name in sorted(shown.keys() & true.keys()):
        if not exactly:
            shown[name], true[name] = _by_node(shown[name]), _by_node(true[name])
        if shown[name] != true[name]:
            yield Finding(VIEW, f"{name}: {dict(shown[name])}, and truly {dict(true[name])}")


def _placed(replicas: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """GPUs of each node."""
    found: Counter[tuple[str, str]] = Counter()
    for replica in replicas:
        for gpu in replica.get("gpus", ()):
            found[replica["node"], str(gpu["index"])] += gpu.get("milli", 1)
    return found


def _counted(job: TrueJob) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for held in job.held:
        for gpu, milli in held.gpus:
            found[held.node, gpu] += milli
        for gpu, _ in held.slices:
            found[held.node, gpu] += 1
    return found


def _by_node(places: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for (node, _), milli in places.items():
        found[node, ""] += milli
    return found


def told(code: int, output: str) -> Iterator[Finding]:
    """What a command must not say."""
    if code not in _CODES:
        yield Finding(DEFECT, f"exit code {code}: {output[-300:]}")
    elif "a defect of gpuplan" in output or "Traceback" in output or "event=defect" in output:
        yield Finding(DEFECT, output[-400:])


def by_kind(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Texts by kind."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for finding in findings:
        found[finding.kind].append(finding.text)
    return dict(found)
