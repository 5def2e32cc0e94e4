"""plan.json: complete, readable, and refused when it is not as it was written."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.base import fingerprint_of
from gpuplan.models.errors import BadInputError, PlannerError, TamperedError
from gpuplan.models.plan.plan import PLAN_FORMAT
from gpuplan.planner.io.atomic_write import has_hash, hash_path
from gpuplan.planner.plan_file import plan_file as plan_module
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan, with_id
from tests.support.builders.build import NOW, job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of, save_stamped
from tests.support.oracles.plan_document import plan_document
from tests.support.seeds import examples


def example():
    """One job runs, one starts, one waits."""
    world = snapshot(
        jobs=[
            job("run", gpus=2, at=[replica("n0", gpus=[0, 1])]),
            job("new", gpus=4, cpus=8, memory_gib=64),
            job("big", gpus=8, replicas=4),
        ]
    )
    return plan_of(world, placement("new", replica("n1", gpus=[0, 1, 2, 3], cpus=8, memory_gib=64)))


PLAN = example()


def written(path, document):
    path.write_text(json.dumps(document))
    return path


def test_a_plan_comes_back_as_it_was_saved(tmp_path):
    save_plan(PLAN, tmp_path / "plan.json")

    assert load_plan(tmp_path / "plan.json") == PLAN


def test_a_compressed_plan_is_the_same_text(tmp_path):
    for name in ("plan.json", "plan.json.gz", "again.json.gz"):
        save_plan(PLAN, tmp_path / name)
    compressed = (tmp_path / "plan.json.gz").read_bytes()

    assert gzip.decompress(compressed) == (tmp_path / "plan.json").read_bytes()
    assert compressed == (tmp_path / "again.json.gz").read_bytes()
    assert load_plan(tmp_path / "plan.json.gz") == PLAN


@pytest.mark.parametrize("harm", [lambda whole: whole[:-9], lambda whole: whole[:30] + b"x" + whole[31:]])
def test_a_damaged_compressed_plan_is_refused(tmp_path, harm):
    save_plan(PLAN, tmp_path / "plan.json.gz")
    path = tmp_path / "plan.json.gz"
    path.write_bytes(harm(path.read_bytes()))

    with pytest.raises(BadInputError) as refused:
        load_plan(path)

    assert [problem.place for problem in refused.value.problems] == [str(path)]


def test_the_file_states_what_the_document_does(tmp_path):
    save_plan(PLAN, tmp_path / "plan.json")

    assert json.loads((tmp_path / "plan.json").read_text()) == plan_document(PLAN)


def test_a_dash_is_standard_input(monkeypatch):
    content = json.dumps(plan_document(PLAN)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    assert load_plan("-") == PLAN


def test_each_action_placement_node_waiting_job_and_snapshot_job_has_its_own_line(tmp_path):
    save_plan(PLAN, tmp_path / "plan.json")
    lines = (tmp_path / "plan.json").read_text().splitlines()

    entries = [line for line in lines if line.startswith("    {")]
    assert len(entries) == len(PLAN.actions) + len(PLAN.placements) + len(PLAN.nodes) + len(PLAN.waiting)
    assert sum(line.startswith('      {"name":') for line in lines) == len(PLAN.snapshot.jobs) + 1
    assert [line.split(":")[0] for line in lines[1:4]] == ['  "format_version"', '  "plan_id"', '  "epoch"']


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path):
    (tmp_path / "plan.json").write_text("old")

    save_plan(PLAN, tmp_path / "plan.json")

    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    assert load_plan(tmp_path / "plan.json") == PLAN


def test_saving_through_a_link_replaces_what_it_points_to(tmp_path):
    (tmp_path / "there.json").write_text("old")
    (tmp_path / "plan.json").symlink_to("there.json")

    save_plan(PLAN, tmp_path / "plan.json")

    assert (tmp_path / "plan.json").is_symlink()
    assert load_plan(tmp_path / "there.json") == PLAN


def test_saving_to_a_pipe_writes_into_it_and_does_not_replace_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    save_plan(PLAN, pipe)
    content = os.read(reader, 100_000)
    os.close(reader)

    assert pipe.is_fifo()
    assert json.loads(content)["plan_id"] == PLAN.plan_id


def test_saving_where_there_is_no_directory_says_so(tmp_path):
    with pytest.raises(PlannerError, match=r"no/plan\.json cannot be written: No such file"):
        save_plan(PLAN, tmp_path / "no" / "plan.json")


def test_the_id_does_not_depend_on_when_or_how_fast_the_plan_was_made():
    later = PLAN.model_copy(
        update={
            "plan_id": "other",
            "created_at": NOW + timedelta(days=1),
            "solution": PLAN.solution.model_copy(update={"seconds": 9.5, "phases": {}}),
        }
    )

    assert with_id(later).plan_id == PLAN.plan_id
    assert len(PLAN.plan_id) == 16


def test_the_id_depends_on_what_the_plan_does():
    fewer = PLAN.model_copy(update={"actions": PLAN.actions[1:]})

    assert with_id(fewer).plan_id != PLAN.plan_id


def test_white_space_is_no_edit(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_document(PLAN), indent=4))

    assert load_plan(path) == PLAN


def _objective(document):
    document["solution"]["objective"] += 1


def _node_of_a_start(document):
    document["actions"][0]["after"]["replicas"][0]["node"] = "n0"


def _unknown_key(document):
    document["note"] = "reviewed"


def _time(document):
    document["created_at"] = "2026-11-21T12:00:00Z"


def _no_checksum(document):
    del document["checksum"]


def _no_solution(document):
    document["solution"] = None


def _half_a_character(document):
    document["plan_id"] = "\ud800"


@pytest.mark.parametrize(
    "edit",
    [_objective, _node_of_a_start, _unknown_key, _time, _no_checksum, _no_solution, _half_a_character],
)
def test_an_edited_plan_is_refused(tmp_path, edit):
    document = plan_document(PLAN)
    edit(document)
    path = written(tmp_path / "plan.json", document)

    with pytest.raises(TamperedError, match=r"plan\.json: the plan was changed after it was made") as caught:
        load_plan(path)
    assert caught.value.exit_code == 23
    assert "gpuplan plan" in str(caught.value)


def test_a_number_beyond_all_bounds_is_refused_as_an_edit(tmp_path):
    text = json.dumps(plan_document(PLAN)).replace('"objective": 100', '"objective": 1e999')
    (tmp_path / "plan.json").write_text(text)

    with pytest.raises(TamperedError):
        load_plan(tmp_path / "plan.json")


def test_a_plan_under_another_plans_id_is_refused(tmp_path):
    document = {**plan_document(PLAN), "plan_id": "0123456789abcdef"}
    del document["checksum"]
    path = written(tmp_path / "plan.json", {**document, "checksum": fingerprint_of(document)})

    with pytest.raises(TamperedError, match=f"found 0123456789abcdef, expected {PLAN.plan_id}"):
        load_plan(path)


CONTENT = json.dumps(plan_document(PLAN)).encode()


@settings(max_examples=examples(150))
@given(offset=st.integers(0, len(CONTENT) - 1), byte=st.integers(0, 255))
def test_a_plan_with_any_byte_changed_is_refused_or_still_the_same_plan(tmp_path_factory, offset, byte):
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    path.write_bytes(CONTENT[:offset] + bytes([byte]) + CONTENT[offset + 1 :])

    try:
        plan = load_plan(path)
    except (TamperedError, BadInputError):
        return
    assert plan == PLAN


def test_keys_of_a_newer_minor_version_are_passed_over(tmp_path):
    document = plan_document(PLAN)
    document["format_version"] = "1.7"
    document["later"] = {"a": 1}
    document["actions"][0]["cost"] = 3
    document["snapshot"]["format_version"] = "1.7"
    document["snapshot"]["jobs"][0]["mood"] = "good"
    document["base"]["snapshot"] = fingerprint_of(document["snapshot"])
    path = save_stamped(tmp_path / "plan.json", document)

    plan = load_plan(path)

    assert plan.actions == PLAN.actions
    assert plan.snapshot == PLAN.snapshot


def test_an_id_that_a_newer_minor_version_made_by_its_own_rules_is_taken(tmp_path):
    document = {**plan_document(PLAN), "format_version": "1.7", "plan_id": "0123456789abcdef"}
    del document["checksum"]
    path = written(tmp_path / "plan.json", {**document, "checksum": fingerprint_of(document)})

    assert load_plan(path).plan_id == "0123456789abcdef"


@pytest.mark.parametrize("version", ["2.0", "0.9", "1", "1.x", "", 1, None])
def test_another_format_is_refused_with_the_versions_that_are_read(tmp_path, version):
    path = save_stamped(tmp_path / "plan.json", {**plan_document(PLAN), "format_version": version})

    with pytest.raises(BadInputError, match=r"expected format_version 1\.x, found") as caught:
        load_plan(path)
    assert f"reads every plan of format 1 and writes {PLAN_FORMAT}" in str(caught.value)
    assert caught.value.exit_code == 24


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "plan.json:1: expected JSON, found an error at column 1"),
        (b'{\n"plan_id": }', "plan.json:2: expected JSON, found an error at column 12"),
        (b"\x7fELF\xff", "expected JSON in UTF-8, found byte 0xff at offset 4"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"plan_id": NaN}', "found NaN, which JSON does not have"),
        (b'{"plan_id": 1' + b"0" * 5000 + b"}", "expected JSON"),
        (b"[]", "found a list"),
        (b"true", "found a truth value"),
        (b"3", "found a number"),
        (b'{"nodes": [], "jobs": []}', "found an object with jobs, nodes"),
        (b"{}", "found an object with no keys"),
    ],
)
def test_what_is_no_plan_is_refused_with_what_was_found(tmp_path, content, message):
    path = tmp_path / "plan.json"
    path.write_bytes(content)

    with pytest.raises(BadInputError) as caught:
        load_plan(path)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_bad_input(tmp_path):
    with pytest.raises(BadInputError, match=r"plan\.json: the plan cannot be read: No such file"):
        load_plan(tmp_path / "plan.json")


def test_a_directory_is_bad_input(tmp_path):
    with pytest.raises(BadInputError, match="cannot be read: Is a directory"):
        load_plan(tmp_path)


def test_all_problems_of_a_complete_file_that_is_no_usable_plan_are_told(tmp_path):
    document = plan_document(PLAN)
    document["actions"][0]["type"] = "teleport"
    document["seed"] = "many"
    path = save_stamped(tmp_path / "plan.json", document)

    with pytest.raises(BadInputError) as caught:
        load_plan(path)
    assert "actions.0" in str(caught.value)
    assert "seed" in str(caught.value)
    assert "found 'many'" in str(caught.value)


@pytest.mark.parametrize("large", [False, True])
def test_a_crash_before_the_plan_is_replaced_leaves_no_hash_of_another(monkeypatch, tmp_path, large):
    plan, path = PLAN, tmp_path / "plan.json"
    monkeypatch.setattr(plan_module, "MANY_ACTIONS", 0)
    save_plan(plan, path)
    before = path.read_bytes()
    assert has_hash(path, before)

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_module, "MANY_ACTIONS", 0 if large else 1_000)
    monkeypatch.setattr(plan_module, "write_with_hash", killed)
    monkeypatch.setattr(plan_module, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        save_plan(plan, path)

    assert (path.read_bytes(), hash_path(path).exists()) == (before, False)
