"""Configuration files of nvidia-mig-parted."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
import yaml

from gpuplan.models.cluster import Gpu, MigInstance
from gpuplan.models.errors import BadInputError
from gpuplan.models.mig import mig_geometry
from gpuplan.planner.sources.mig_parted import has_places, layouts_of, mig_parted_text, read_mig_parted
from tests.support.builders.build import node

MODELS = ("H100-80GB", "A30", "A100-40GB")


def random_layout(geometry):
    """A legal layout, by adding instances at random."""
    made = []
    for _ in range(random.randrange(9)):
        profile = random.choice(list(geometry.profiles.values()))
        wanted = MigInstance(profile=profile.name, start=random.choice(profile.starts))
        if not list(geometry.faults([*made, wanted])):
            made.append(wanted)
    return tuple(made)


def written(tmp_path, text):
    path = tmp_path / "mig.yaml"
    path.write_text(text)
    return str(path)


def problems(tmp_path, text, *nodes):
    with pytest.raises(BadInputError) as error:
        read_mig_parted(written(tmp_path, text), {each.name: each for each in nodes or (node(),)})
    return [each.message for each in error.value.problems]


def test_what_is_written_is_read_again_as_counts(tmp_path):
    random.seed(2)
    for _ in range(60):
        model = random.choice(MODELS)
        geometry = mig_geometry(model)
        layouts = {index: random_layout(geometry) for index in range(8) if random.random() < 0.7}
        details = tuple(Gpu(index=index, mig=layout) for index, layout in layouts.items())
        host = node(model=model, details=details)

        path = written(tmp_path, mig_parted_text({"n0": layouts_of(host)}))

        assert read_mig_parted(path, {"n0": host}) == {
            "n0": {
                index: Counter(each.profile for each in layouts[index]) if index in layouts else None
                for index in range(8)
            }
        }


def test_a_file_has_the_fields_of_mig_parted_and_gpus_of_equal_layouts_share_an_entry():
    host = node(mig={1: [("3g.40gb", 4), ("3g.40gb", 0)], 5: [("3g.40gb", 0), ("3g.40gb", 4)], 6: []})

    document = yaml.safe_load(mig_parted_text({"n0": layouts_of(host)}))

    assert document == {
        "version": "v1",
        "mig-configs": {
            "n0": [
                {"devices": [0, 2, 3, 4, 7], "mig-enabled": False},
                {"devices": [1, 5], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
                {"devices": [6], "mig-enabled": True, "mig-devices": {}},
            ]
        },
    }


def test_the_forms_of_mig_parted_are_read(tmp_path):
    text = """
version: v1
mig-configs:
  n0:
  - devices: all
    mig-enabled: true
    mig-devices: {"1g.10gb": 7}
  n1:
  - devices: 3
    mig-enabled: false
"""
    found = read_mig_parted(written(tmp_path, text), {name: node(name, gpus=4) for name in ("n0", "n1")})

    assert found == {"n0": {index: Counter({"1g.10gb": 7}) for index in range(4)}, "n1": {3: None}}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_counts_fit_if_and_only_if_some_places_are_legal(model):
    """Compared with all combinations of starts, for all multisets of three profiles and random other ones."""
    random.seed(4)
    geometry = mig_geometry(model)
    names = list(geometry.profiles)
    asked = [Counter(chosen) for chosen in product(names, repeat=3)]
    asked += [Counter(random.choices(names, k=random.choice((1, 2, 4, 5)))) for _ in range(40)]
    seen = set()
    for counts in asked:
        wanted = list(counts.elements())
        starts = product(*(geometry.profiles[name].starts for name in wanted))
        fits = any(
            not list(
                geometry.faults(
                    MigInstance(profile=name, start=start) for name, start in zip(wanted, each, strict=True)
                )
            )
            for each in starts
        )
        assert has_places(geometry, counts) == fits, counts
        seen.add(fits)
    assert seen == {True, False}


def test_far_too_many_instances_are_refused_at_once():
    geometry = mig_geometry("H100-80GB")

    assert has_places(geometry, {"1g.10gb": 7})
    assert not has_places(geometry, {"1g.10gb": 8})
    assert not has_places(geometry, {"1g.10gb": 100_000})


def test_all_problems_are_told_at_once(tmp_path):
    text = """
version: v1
mig-configs:
  nowhere: []
  n0:
  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1}}
  - {devices: [0, 99], mig-enabled: false, mig-devices: {1g.10gb: 1}, device-filter: "0x233010DE"}
  n1:
  - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2, 1g.10gb: 1}}
  - {devices: [1, 1], mig-enabled: false}
  t4:
  - {devices: [0], mig-enabled: true}
"""
    found = problems(tmp_path, text, node("n0"), node("n1"), node("t4", model="T4"), node("cpu", gpus=0))

    assert len(found) == 9
    for number, part in enumerate(
        (
            *("profile '1g.5gb'", "device-filter", "GPU 99", "GPU 0 twice", "mig-enabled is false"),
            *("1g.10gb + 2 × 3g.40gb on one GPU", "GPU 1 twice", "'nowhere'", "'T4'"),
        )
    ):
        assert part in found[number], (number, found)


def test_a_file_of_another_format_is_refused_with_its_lines(tmp_path):
    with pytest.raises(BadInputError) as error:
        read_mig_parted(written(tmp_path, "version: v2\nmig-config: {}\n"), {})

    assert sorted(str(each.place).rpartition(":")[2] for each in error.value.problems) == ["1", "1", "2"]
