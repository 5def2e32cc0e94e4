"""Files are written whole or not at all, and what cannot be written is known before."""

from __future__ import annotations

import os

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.io.atomic_write import require_writable, write_atomically


@pytest.mark.parametrize("content", ["täxt\n", b"\x89PNG\r\n"])
def test_what_is_written_is_there_and_nothing_else(tmp_path, content):
    path = tmp_path / "file"

    for written in ("old", content):
        require_writable(path)
        write_atomically(path, written)

    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_a_device_written_through(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")

    for path in (link, "/dev/null"):
        require_writable(path)
        write_atomically(path, "text")

    assert link.is_symlink()
    assert link.read_text() == "text"


def test_a_pipe_without_a_name_is_written_through():
    reading, writing = os.pipe()
    path = f"/dev/fd/{writing}"

    require_writable(path)
    write_atomically(path, "text")

    assert os.read(reading, 99) == b"text"
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("none/file", "No such file or directory"),
        ("folder", "Is a directory"),
        ("plain/file", "Not a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_what_cannot_be_written_is_told_alike_before_and_when_it_is_tried(tmp_path, monkeypatch, path, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("")

    told = []
    for attempt in (require_writable, lambda path: write_atomically(path, "text")):
        with pytest.raises(PlannerError, match=why) as refused:
            attempt(path)
        told.append(str(refused.value))

    assert told[0] == told[1]
    assert {each.name for each in tmp_path.iterdir()} == {"folder", "plain"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path):
    tmp_path.chmod(0o500)

    with pytest.raises(PlannerError, match="Permission denied"):
        require_writable(tmp_path / "file")
