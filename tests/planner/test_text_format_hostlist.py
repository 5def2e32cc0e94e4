from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.text_format import hostlist
from tests.support.seeds import examples


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["h100-03"], "h100-03"),
        (["h100-03", "h100-04", "h100-05", "h100-06"], "h100-[03-06]"),
        (["h100-03", "h100-04", "h100-09"], "h100-[03-04,09]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["a1.local", "a2.local"], "a[1-2].local"),
        (["b1", "a1", "a1"], "a1,b1"),
    ],
)
def test_names_fold_as_slurm_writes_them(names, text):
    assert hostlist(names) == text


def expand(text):
    """The names of a host list, as Slurm reads it."""
    names = set()
    for part in re.findall(r"[^,\[]*\[[^\]]*\][^,]*|[^,]+", text):
        match = re.fullmatch(r"(.*)\[(.*)\](.*)", part)
        if match is None:
            names.add(part)
            continue
        for span in match[2].split(","):
            first, last = (span.split("-") * 2)[:2]
            for number in range(int(first), int(last) + 1):
                names.add(f"{match[1]}{number:0{len(first)}d}{match[3]}")
    return names


name_lists = st.lists(
    st.from_regex(r"(n|rack0-n)?[0-9]{1,3}(x|-a)?", fullmatch=True)
    | st.from_regex(r"[a-z]{1,3}", fullmatch=True),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(name_lists)
def test_a_list_stands_for_exactly_its_names(names):
    assert expand(hostlist(names)) == set(names)
    assert hostlist(names) == hostlist(names[::-1])
