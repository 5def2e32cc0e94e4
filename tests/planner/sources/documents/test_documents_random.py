"""
Whatever stands in a document, loading it works or tells what is wrong; it never fails in another way.

A valid snapshot is spoiled in many ways, as data and as text. Floors on how often each way is noticed keep
these properties from becoming empty.
"""

from __future__ import annotations

import copy
import json
import math
import re
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.errors import BadInputError
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.sources.files import load_policy, load_snapshot
from tests.support.samples.full_document import GOOD, PATHS, paths
from tests.support.seeds import examples

FEW = settings(max_examples=examples(60), deadline=None, database=None)

FREE_KEYS = {"labels", "resources", "gpu_models", "mig", "node_selector", "zones", "overcommit"}

JUNK = (
    *(None, True, -1, 0, 7, 10**30, -(10**30), 10**399, 1e308, -0.5, math.nan, math.inf),
    *(
        "",
        " ",
        "x" * 5000,
        "\x1b[31m\n",
        "\u202e",
        "٣",
        "é",
        "no",
        "NaN",
        "-0",
        "1e999999999",
        "-1e-999999999",
    ),
    *("9" * 40 + "Gi", "9" * 5000 + "s", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "9" * 500),
    *("2026-11-20T12:00:00", "0g.0gb", "1g.10gb", "n9", "sNaN", "Infinity", "1e5", "0x10", "{}", "[key]"),
    *([], {}, [[]], [None], ["a", "a"], {"": ""}, {"a": {"b": {}}}, [{"name": "n0"}], {"GpuShare": 1}),
)


def spoiled(path, change):
    """The good document with what is at a path changed within its holder."""
    document = copy.deepcopy(GOOD)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return document


def replaced(data):
    path, value = data.draw(st.sampled_from(PATHS)), junk(data)
    return spoiled(path, lambda holder, key: holder.__setitem__(key, value))


def junk(data):
    """A value of its own, which may be spoiled in turn."""
    return copy.deepcopy(data.draw(st.sampled_from(JUNK)))


def replaced_twice(data):
    document = replaced(data)
    for path in data.draw(st.lists(st.sampled_from([path for path in PATHS if len(path) < 4]), max_size=3)):
        holder = document
        for key in path[:-1]:
            holder = (
                holder[key] if isinstance(holder, dict | list) and key in dict(paths_of(holder)) else None
            )
        if isinstance(holder, dict):
            holder[path[-1]] = junk(data)
    return document


def paths_of(holder):
    return holder.items() if isinstance(holder, dict) else enumerate(holder)


def removed(data):
    return spoiled(data.draw(st.sampled_from(PATHS)), lambda holder, key: holder.pop(key))


def with_a_name_twice(data):
    of_cluster = ("nodes", "pools", "datasets", "reservations", "tariffs")
    lists = [*(("cluster", name, 0) for name in of_cluster), ("queues", 0), ("jobs", 0)]
    return spoiled(data.draw(st.sampled_from(lists)), lambda holder, _: holder.append(dict(holder[-1])))


def with_an_unknown_reference(data):
    named, within = ("queue", "parent", "node", "pool", "3g.40gb", "job"), ("datasets", "nodes", "queues")
    references = [
        path
        for path in PATHS
        if (path[-1] in named and not {"promise", "finished"} & {*path})
        or "rack_power" in path[:-2]
        or (isinstance(path[-1], int) and path[-2] in within and len(path) > 3)
    ]
    path, name = (
        data.draw(st.sampled_from(references)),
        data.draw(st.sampled_from(["n", "TOP", "n00", "a" * 200])),
    )

    def rename(holder, key):
        if key == "3g.40gb":
            holder[name] = holder.pop(key)
        else:
            holder[key] = name

    return spoiled(path, rename)


def with_a_cycle_of_queues(data):
    document = copy.deepcopy(GOOD)
    length = data.draw(st.integers(1, 40))
    names = data.draw(st.permutations([f"c{number}" for number in range(length)]))
    document["queues"] += [
        {"name": name, "parent": names[(number + 1) % length]} for number, name in enumerate(names)
    ]
    return document


def with_an_unknown_field(data):
    mappings = [(), *(path for path in PATHS if isinstance(at(path), dict) and path[-1] not in FREE_KEYS)]
    path = data.draw(st.sampled_from(mappings))
    return spoiled((*path, "zzz"), lambda holder, key: holder.__setitem__(key, 1))


def at(path):
    value = GOOD
    for key in path:
        value = value[key]
    return value


def as_text(data, document):
    """One of the ways to write a document down; YAML has NaN and huge numbers as JSON's words for them."""
    way = data.draw(st.sampled_from(["x.json", "x.yaml", "flow.yaml"]))
    if way == "x.yaml":
        return way, yaml.safe_dump(document, allow_unicode=True, sort_keys=False).encode()
    return way, json.dumps(document, indent=1).encode()


def cut_off(data):
    name, text = as_text(data, GOOD)
    return name, text[: data.draw(st.integers(0, len(text) - 1))]


def with_bytes_put_in(data):
    name, text = as_text(data, GOOD)
    position = data.draw(st.integers(0, len(text)))
    return name, text[:position] + data.draw(st.binary(min_size=1, max_size=8)) + text[position:]


def with_something_put_in(data):
    name, text = as_text(data, GOOD)
    position = data.draw(st.integers(0, len(text)))
    pieces = (
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"',
        "\n",
        "&a ",
        "*a",
        "!!x ",
        "---\n",
        "\t",
        "- ",
        "NaN",
        "[" * 3000,
        "\\ud800",
    )
    return name, text[:position] + data.draw(st.sampled_from(pieces)).encode() + text[position:]


def random_bytes(data):
    return data.draw(st.sampled_from(["x.json", "x.yaml"])), data.draw(st.binary(max_size=200))


def deeply_nested(data):
    opening = data.draw(st.sampled_from(["[", '{"jobs":', '{"jobs":[{"request":']))
    closing = opening[::-1].translate(str.maketrans("[{", "]}", '":abcdefghijklmnopqrstuvwxyz'))
    depth = data.draw(st.sampled_from([65, 300, 5000, 100_000]))
    end = data.draw(st.sampled_from(["", "1" + closing * depth]))
    return data.draw(st.sampled_from(["x.json", "x.yaml"])), (opening * depth + end).encode()


AS_DATA = {
    replaced: 0.5,
    replaced_twice: 0.7,
    removed: 0.2,
    with_a_name_twice: 1.0,
    # A node that is not there is damage, and planned.
    with_an_unknown_reference: 0.5,
    with_a_cycle_of_queues: 1.0,
    with_an_unknown_field: 1.0,
}
AS_TEXT = {
    cut_off: 0.8,
    with_bytes_put_in: 0.8,
    with_something_put_in: 0.6,
    random_bytes: 1.0,
    deeply_nested: 1.0,
}


def problems_of(name, content, load=load_snapshot):
    """Problems of a file, none if it loads; what any problem must have is asserted here."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(content)
        try:
            load(str(path))
        except BadInputError as error:
            told = error
        else:
            return ()
    assert told.exit_code == 24
    assert told.problems
    for problem in told.problems:
        assert re.fullmatch(rf"{re.escape(str(path))}(:\d+)?", problem.place)
        assert problem.message.strip()
        assert problem.message.replace("\n", "").isprintable()
        assert len(problem.message) < 2_000
    return told.problems


def test_the_good_document_is_good():
    assert problems_of("x.json", json.dumps(GOOD).encode()) == ()
    assert problems_of("x.yaml", yaml.safe_dump(GOOD).encode()) == ()


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "floor"), [*AS_DATA.items(), *AS_TEXT.items()])
def test_a_spoiled_document_loads_or_is_told(spoil, floor):
    noticed = []

    @FEW
    @given(st.data())
    def attempt(data):
        made = spoil(data)
        name, content = made if spoil in AS_TEXT else as_text(data, made)
        noticed.append(bool(problems_of(name, content)))

    attempt()

    assert sum(noticed) >= floor * len(noticed)


@pytest.mark.slow
@FEW
@given(st.data())
def test_an_unknown_field_is_told_on_its_own_line(data):
    name, content = as_text(data, with_an_unknown_field(data))

    (problem,) = problems_of(name, content)

    line = int(problem.place.rpartition(":")[2])
    assert "zzz" in content.decode().splitlines()[line - 1]
    assert "'zzz'" in problem.message


@FEW
@given(st.data())
def test_a_spoiled_policy_loads_or_is_told(data):
    good = {"weights": {"basis": "job", "ageing": {"step": "6h"}}, "budget": {"time_limit": "1s", "ticks": 5}}
    path = data.draw(st.sampled_from(tuple(paths(good))))
    document = copy.deepcopy(good)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = data.draw(st.sampled_from(JUNK))

    problems_of("policy.json", json.dumps(document).encode(), load=load_policy)


@FEW
@given(
    st.recursive(
        st.sampled_from(JUNK), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner)
    )
)
def test_any_document_loads_or_is_told(document):
    problems_of("x.json", json.dumps(document).encode())


@FEW
@given(st.data())
def test_what_loads_is_a_snapshot_without_contradictions(data):
    """What passes the loader can be fingerprinted and asked for its sizes."""
    name, content = as_text(data, replaced(data))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(content)
        try:
            snapshot = load_snapshot(str(path))
        except BadInputError:
            return

    assert Snapshot.model_validate(snapshot.document()) == snapshot
    assert len(snapshot.fingerprint()) == 64
    assert all(job.request.total_gpu_milli >= 0 for job in snapshot.jobs)
    assert all(replica.quota_milli >= 0 for run in snapshot.running_placements for replica in run.replicas)
