"""Signatures beside a plan: the plan stays as it is, none is lost, and a file of others is refused."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuplan.models.errors import PlannerError, TamperedError
from gpuplan.planner.approval.approvals_file import add_signature, approvals_path, read_signatures
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.plan_file.plan_file import load_with_checksum, save_plan
from tests.support.builders.approval_keys import signature_of
from tests.support.oracles.plan_document import plan_document
from tests.support.samples.apply_world import PLAN

SUM = plan_document(PLAN)["checksum"]


def signed(number, checksum=SUM, cluster="here"):
    return signature_of(PLAN, checksum, cluster, number)


@pytest.fixture
def plan_file(tmp_path):
    save_plan(PLAN, tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_signatures_are_kept_beside_the_plan_which_stays_as_it_is(plan_file):
    before = plan_file.read_bytes()
    assert read_signatures(plan_file) == ()

    for number in (1, 2, 1):
        add_signature(plan_file, signed(number))
    add_signature(plan_file, signed(1, cluster="there"))

    assert read_signatures(plan_file) == (signed(2), signed(1), signed(1, cluster="there"))
    assert plan_file.read_bytes() == before
    assert load_with_checksum(plan_file) == (PLAN, SUM)
    assert oct(approvals_path(plan_file).stat().st_mode) == "0o100600"


def test_signatures_of_a_plan_that_was_there_before_make_place(plan_file):
    add_signature(plan_file, signed(1, checksum="ab" * 32))
    add_signature(plan_file, signed(2))

    assert read_signatures(plan_file) == (signed(2),)


def test_a_link_to_a_plan_leads_to_its_signatures(plan_file, tmp_path):
    link = tmp_path / "folder" / "latest.json"
    link.parent.mkdir()
    link.symlink_to(plan_file)
    add_signature(link, signed(1))

    assert read_signatures(plan_file) == read_signatures(link) == (signed(1),)


def test_no_signature_is_lost_among_many_that_come_at_once(plan_file):
    def add(number):
        while True:
            try:
                return add_signature(plan_file, signed(number))
            except LockedError:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(12)))

    assert {each.key for each in read_signatures(plan_file)} == {signed(number).key for number in range(12)}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"signatures": [1]}', '{"format_version": "2.0"}', "\0"])
def test_a_file_that_gpuplan_did_not_write_is_refused(plan_file, content):
    approvals_path(plan_file).write_text(content)
    with pytest.raises(TamperedError):
        read_signatures(plan_file)


def test_a_plan_from_standard_input_has_no_signatures():
    assert read_signatures("-") == ()
    with pytest.raises(PlannerError, match="standard input"):
        approvals_path("-")


def test_what_is_written_is_synced_before_it_gets_its_name(plan_file, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("sync"))
    add_signature(plan_file, signed(1))
    assert len(calls) >= 2
