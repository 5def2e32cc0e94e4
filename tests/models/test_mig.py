"""MIG legality against an independent enumeration of placements as intervals of memory slices."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import MigInstance
from gpuplan.models.mig import mig_geometry, profile_milli

# (name, memory slices, compute slices, starts, most), from the published placement tables.
SEVEN = (
    ("1g.10gb", 1, 1, range(7), 7),
    ("1g.20gb", 2, 1, (0, 2, 4, 6), 4),
    ("2g.20gb", 2, 2, (0, 2, 4), 3),
    ("3g.40gb", 4, 3, (0, 4), 2),
    ("4g.40gb", 4, 4, (0,), 1),
    ("7g.80gb", 8, 7, (0,), 1),
)
FOUR = (
    ("1g.6gb", 1, 1, range(4), 4),
    ("2g.12gb", 2, 2, (0, 2), 2),
    ("4g.24gb", 4, 4, (0,), 1),
)
MEDIA = (("1g.6gb+me", 1, 1, range(4), 1), ("2g.12gb+me", 2, 2, (0, 2), 1))


def placements(table):
    return [(name, start, start + size) for name, size, _, starts, _ in table for start in starts]


def disjoint(one, other):
    return one[2] <= other[1] or other[2] <= one[1]


def legal_sets(table):
    """Sets of placements in which no two overlap and no profile is used too often."""
    most = {name: limit for name, *_, limit in table}
    found = [()]
    for placement in placements(table):
        found += [
            (*chosen, placement)
            for chosen in found
            if all(disjoint(placement, other) for other in chosen)
            and sum(other[0] == placement[0] for other in chosen) < most[placement[0]]
            and sum("+me" in name for name, *_ in (*chosen, placement)) <= 1
        ]
    return set(found)


def faults(model, chosen):
    return list(
        mig_geometry(model).faults(MigInstance(profile=name, start=start) for name, start, _ in chosen)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "table", "count"),
    [("H100-80GB", SEVEN, 722), ("A30-24GB", FOUR, 25), ("A30-24GB", FOUR + MEDIA, None)],
)
def test_exactly_the_sets_of_disjoint_placements_are_legal(model, table, count):
    legal = legal_sets(table)

    assert count is None or len(legal - {()}) == count
    assert [chosen for chosen in legal if faults(model, chosen)] == []
    # Every illegal set holds a legal one and one placement too many.
    order = placements(table)
    one_too_many = {
        tuple(sorted({*chosen, extra}, key=order.index)) for chosen in legal for extra in order
    } - legal
    assert one_too_many
    assert [chosen for chosen in one_too_many if not faults(model, chosen)] == []


def test_a_legal_set_never_has_more_compute_slices_than_the_gpu():
    compute = {name: slices for name, _, slices, *_ in SEVEN}

    assert max(sum(compute[name] for name, *_ in chosen) for chosen in legal_sets(SEVEN)) == 7


def test_two_3g_leave_no_room_for_a_1g_though_compute_slices_add_up_to_seven():
    two = [("3g.40gb", 0, 4), ("3g.40gb", 4, 8)]

    assert faults("H100-80GB", two) == []
    for start in range(7):
        assert len(faults("H100-80GB", [*two, ("1g.10gb", start, start + 1)])) == 1


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ([("2g.20gb", 1)], "2g.20gb at slice 1: may start at 0, 2, 4"),
        (
            [("3g.40gb", 4), ("1g.10gb", 5)],
            "1g.10gb at slice 5: memory slice 5 belongs to 3g.40gb at slice 4",
        ),
        ([("1g.10gb+me", 0), ("1g.10gb+me", 1)], "2 x 1g.10gb+me: at most 1 fit one GPU"),
    ],
)
def test_a_fault_says_what_and_why(chosen, told):
    assert told in faults("H100-80GB", [(name, start, None) for name, start in chosen])


def test_an_unknown_profile_is_told_with_those_on_offer():
    (told,) = faults("A30-24GB", [("1g.5gb", 0, 1)])

    assert told == "1g.5gb at slice 0: this GPU model offers 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb"


def test_faults_do_not_depend_on_the_order_of_the_instances():
    chosen = [("3g.40gb", 4, 8), ("4g.40gb", 0, 4), ("1g.10gb", 2, 3), ("2g.20gb", 1, 3)]

    assert faults("H100-80GB", chosen) == faults("H100-80GB", chosen[::-1])


def test_models_by_their_product_labels_have_the_same_geometry():
    assert mig_geometry("NVIDIA-H100-80GB-HBM3") is mig_geometry("H100-80GB")
    assert mig_geometry("T4") is None


@pytest.mark.parametrize(
    ("profile", "milli"),
    [("1g.10gb", 142), ("2g.20gb", 285), ("3g.40gb", 428), ("7g.80gb", 1000), ("1g.6gb+me", 142)],
)
def test_a_profile_counts_for_its_sevenths_of_a_gpu(profile, milli):
    assert profile_milli(profile) == milli


@pytest.mark.parametrize("name", ["", "g.10gb", "1g", "1g.10gb+", "1g.10GB", "3g.40gb "])
def test_what_is_no_profile_is_refused(name):
    with pytest.raises(ValueError, match=r"expected a MIG profile such as 3g\.40gb, found"):
        profile_milli(name)
