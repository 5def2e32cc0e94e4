"""slurmrestd: what it tells becomes the same snapshot, and its token stays where it is."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.sources.slurm import rest
from gpuplan.planner.sources.slurm.rest import read_slurm_rest
from gpuplan.planner.sources.slurm.slurm import read_slurm_files
from tests.planner.sources.slurm.test_slurm import RECORDED
from tests.support.output.run_command import run_command

FOLDER = RECORDED / "22.05-accounts"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.secret"


def pages(version="v0.0.38", schemas=("v0.0.37", "v0.0.38")):
    """Answers of a server by path: records of a live cluster."""
    found = {"/openapi/v3": json.dumps({"paths": [f"/slurm/{each}/nodes" for each in schemas]})}
    for key in ("nodes", "jobs"):
        found[f"/slurm/{version}/{key}"] = (FOLDER / f"{key}.json").read_text()
    for key in ("partitions", "reservations"):
        found[f"/slurm/{version}/{key}"] = (FOLDER / "rest" / f"{key}.json").read_text()
    for key in ("associations", "qos"):
        found[f"/slurmdb/{version}/{key}"] = (FOLDER / "rest" / f"{key}.json").read_text()
    return found


class Recorded(datetime):
    """The time of the records."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(1_795_465_600, tz)


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A stand-in on a socket."""


@contextlib.contextmanager
def serving(answers, *, token=None, socket=None, failing=None):
    """A stand-in for slurmrestd with these answers; yields its URL and the headers that it saw."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append({key.lower(): value for key, value in self.headers.items()})
            status, body = (200, answers[self.path]) if self.path in answers else (404, "Unable find")
            if self.path in (failing or {}):
                status, body = 500, failing[self.path]
            if token and self.headers.get("X-SLURM-USER-TOKEN") != token:
                status, body = 401, '{"errors": [{"description": "Authentication failure"}]}'
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

        def address_string(self):
            return "client"

    server = UnixServer(str(socket), Handler) if socket else ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"unix://{socket}" if socket else f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv("SLURM_JWT", raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("by_socket", [True, False])
def test_a_server_tells_the_same_as_the_commands(tmp_path, monkeypatch, by_socket):
    """It tells no topology and no settings, so there are no racks and no pools."""
    monkeypatch.setattr(rest, "datetime", Recorded)
    with serving(pages(), socket=tmp_path / "s.sock" if by_socket else None) as (url, _):
        found = read_slurm_rest(url).snapshot
    saved = read_slurm_files(FOLDER).snapshot

    assert found.queues == saved.queues
    assert found.cluster.reservations == saved.cluster.reservations
    assert found.cluster.pools == ()
    assert [job.name for job in found.jobs] == [job.name for job in saved.jobs]
    for one, other in zip(found.jobs, saved.jobs, strict=True):
        assert one == other
    plain = {"rack": "", "pool": None}
    up = [each.model_copy(update=plain) for each in saved.cluster.nodes]
    assert [each for each in found.cluster.nodes if each.ready] == up
    assert [each.name for each in found.cluster.nodes if not each.ready] == ["cloud02"]


@pytest.mark.slow
def test_the_newest_known_schema_is_asked_for():
    with serving(pages("v0.0.44", ("v0.0.40", "v0.0.44", "v0.0.47"))) as (url, _):
        assert len(read_slurm_rest(url).snapshot.cluster.nodes) == 6


@pytest.mark.slow
def test_without_accounting_there_are_no_quotas():
    answers = {path: text for path, text in pages().items() if "slurmdb" not in path}

    with serving(answers) as (url, _):
        assert all(queue.quota is None for queue in read_slurm_rest(url).snapshot.queues)


@pytest.mark.slow
def test_accounts_that_the_server_offers_and_cannot_read_are_an_error():
    """As 22.05 does it without slurmdbd."""
    said = '{"errors": [{"description": "Failed connecting to slurmdbd"}]}'

    with (
        serving(pages(), failing={"/slurmdb/v0.0.38/qos": said}) as (url, _),
        pytest.raises(PlannerError, match="Failed connecting to slurmdbd"),
    ):
        read_slurm_rest(url)


@pytest.mark.slow
def test_a_token_is_sent_to_the_server_and_said_to_none_else(tmp_path, monkeypatch):
    with serving(pages(), token=TOKEN) as (url, seen):
        monkeypatch.setenv("SLURM_JWT", TOKEN)
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        done = run_command(
            ["snapshot", "--from", "slurmrestd", "--url", url, "-o", "s.json"], folder=tmp_path
        )

        assert done.returncode == 0, done.stderr
        assert {headers["x-slurm-user-token"] for headers in seen} == {TOKEN}
        assert TOKEN not in (tmp_path / "s.json").read_text() + done.stdout + done.stderr

        monkeypatch.setenv("SLURM_JWT", "wrong-token")
        with pytest.raises(PlannerError, match="401 Unauthorized") as caught:
            read_slurm_rest(url)
        assert "wrong-token" not in str(caught.value)
        assert "scontrol token" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ümlaut"])
def test_a_token_that_is_none_is_not_said(monkeypatch, token):
    monkeypatch.setenv("SLURM_JWT", token)

    with serving(pages()) as (url, seen), pytest.raises(PlannerError, match="SLURM_JWT") as caught:
        read_slurm_rest(url)

    assert not seen
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host", "no URL of slurmrestd"),
        ("unix://", "no URL of slurmrestd"),
        ("host:6820", "no URL of slurmrestd"),
        ("http://me:pass@host", "user or password"),
        ("unix:///nowhere/s.sock", "does not answer"),
    ],
)
def test_a_url_that_cannot_be_asked(url, said):
    with pytest.raises(PlannerError, match=said) as caught:
        read_slurm_rest(url)

    assert "pass@" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"/openapi/v3": "<html>"}, "no slurmrestd"),
        ({"/openapi/v3": '{"paths": []}'}, "offers schemas none"),
        ({"/openapi/v3": '{"paths": ["/slurm/v0.0.30/nodes"]}'}, "offers schemas v0.0.30"),
        ({"/slurm/v0.0.38/jobs": None}, "jobs failed: 404"),
        ({"/slurm/v0.0.38/jobs": "[]"}, "expected a list of records"),
    ],
)
def test_a_server_that_answers_otherwise_is_told(changes, said):
    answers = {path: text for path, text in (pages() | changes).items() if text is not None}

    with serving(answers) as (url, _), pytest.raises(PlannerError, match=said):
        read_slurm_rest(url)
