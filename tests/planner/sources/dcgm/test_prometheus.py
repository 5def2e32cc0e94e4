"""The HTTP API of Prometheus: answers, refusals, and credentials that stay where they are."""

from __future__ import annotations

import json
import socket

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.sources.dcgm import prometheus
from gpuplan.planner.sources.dcgm.prometheus import Prometheus
from tests.support.builders.build import NOW
from tests.support.doubles.prometheus_api import serving

SECRET = "s3cret-t0ken"
VECTOR = '{"status":"success","data":{"resultType":"vector","result":[%s]}}'


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch):
    for name in (prometheus.TOKEN_FILE, prometheus.CA_FILE, prometheus.CERT_FILE, prometheus.KEY_FILE):
        monkeypatch.delenv(name, raising=False)


def asked(url, query="up"):
    with Prometheus(url) as server:
        return server.instant(query, NOW), server.warnings


def refused(answer):
    """The error about an answer, with the URL as URL."""
    with serving(lambda *_: answer) as (url, _), pytest.raises(PlannerError) as error:
        asked(url)
    return str(error.value).replace(url, "URL")


@pytest.mark.slow
def test_values_that_are_no_numbers_are_left_out():
    body = VECTOR % ",".join(
        f'{{"metric":{{"gpu":"{n}"}},"value":[1795176000.5,"{value}"]}}'
        for n, value in enumerate(["1.5", "NaN", "+Inf", "-Inf", "0"])
    )
    with serving(lambda *_: body) as (url, _):
        found, _ = asked(url)

    assert [list(series.samples) for series in found] == [
        [(1795176000.5, 1.5)],
        [],
        [],
        [],
        [(1795176000.5, 0.0)],
    ]


@pytest.mark.slow
def test_queries_are_of_the_instant_and_below_the_path():
    questions = []

    def answer(path, query):
        questions.append((path, query))
        kind = "vector" if path.endswith("query") else "matrix"
        return json.dumps({"status": "success", "data": {"resultType": kind, "result": []}})

    with serving(answer) as (url, _), Prometheus(f"{url}/prom/") as server:
        server.instant("up{a='b'}", NOW)
        server.over("up", NOW, seconds=600, step=60)

    at = NOW.timestamp()
    assert [path for path, _ in questions] == ["/prom/api/v1/query", "/prom/api/v1/query_range"]
    assert questions[0][1] == {"query": "up{a='b'}", "time": str(at)}
    assert questions[1][1] == {"query": "up", "start": str(at - 600), "end": str(at), "step": "60"}


@pytest.mark.slow
def test_warnings_of_a_server_that_has_a_part_of_the_data_are_kept_once():
    body = '{"status":"success","warnings":["store a is down"],"data":{"resultType":"vector","result":[]}}'
    with serving(lambda *_: body) as (url, _), Prometheus(url) as server:
        server.instant("up", NOW)
        server.instant("up", NOW)

        assert server.warnings == ["store a is down"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "<html>Sign in</html>",
        "[]",
        "{}",
        '{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":[],"value":[1,"2"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,null]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[1,"1"]}]}}',
        '{"status":"error","errorType":"x","error":"y","data":{"resultType":"vector","result":[]}}',
        b"\xff\xfe",
    ],
)
def test_an_answer_of_another_kind_is_told(body):
    assert refused(body).startswith("URL is no Prometheus: its answer to /api/v1/query")


@pytest.mark.slow
def test_refusals_are_told_with_what_the_server_says():
    error = '{"status":"error","errorType":"bad_data","error":"parse error:\\n unexpected"}'

    assert refused((400, error, {})) == (
        "URL/api/v1/query failed: 400 Bad Request (bad_data: parse error: unexpected)."
    )
    assert "(timeout: query timed out)" in refused(
        (503, '{"status":"error","errorType":"timeout","error":"query timed out"}', {})
    )
    assert prometheus.TOKEN_FILE in refused((401, "Unauthorized", {}))
    assert "may not read" in refused((403, "", {}))
    assert "another path" in refused((404, "404 page not found", {}))
    assert len(refused((500, json.dumps({"errorType": "e", "error": "x" * 10_000}), {}))) < 500


def test_a_redirect_is_not_followed_and_what_it_says_is_not_repeated():
    told = refused((302, "", {"Location": "https://login.example.org/?state=s3cret-t0ken"}))

    assert "redirects to https://login.example.org (302 Found)" in told
    assert SECRET not in told


def test_a_server_that_is_not_there_or_says_nothing_is_told(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(prometheus, "_TIMEOUT", 0.2)
        with pytest.raises(PlannerError, match="does not answer within"):
            asked(url)
    with pytest.raises(PlannerError, match=r"does not answer: .*refused"):
        asked(url)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "http://",
        "prometheus:9090",
        "http://h?x=1",
        "http://h#x",
        "http://ann:s3cret-t0ken@h",
        "http://[::1",
        "http://h:99999",
        "http://a b",
    ],
)
def test_what_is_no_url_of_a_prometheus_is_refused_without_its_secrets(url):
    with pytest.raises(PlannerError) as error:
        asked(url)

    assert SECRET not in str(error.value)


@pytest.mark.slow
def test_a_token_is_sent_to_the_server_and_said_to_none_else(tmp_path, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv(prometheus.TOKEN_FILE, str(tmp_path / "token"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving(lambda *_: VECTOR % "") as (url, seen):
        asked(url)

    assert [headers["authorization"] for headers in seen] == [f"Bearer {SECRET}"]
    assert SECRET not in caplog.text
    assert SECRET not in refused((401, "", {}))


@pytest.mark.parametrize("content", ["", "two words", "ümlaut", "a\nb"])
def test_a_file_without_a_token_is_told_without_what_it_holds(tmp_path, monkeypatch, content):
    (tmp_path / "token").write_text(content)
    monkeypatch.setenv(prometheus.TOKEN_FILE, str(tmp_path / "token"))

    with pytest.raises(PlannerError, match="holds no token") as error:
        asked("http://127.0.0.1:9")
    assert not content or content not in str(error.value)


@pytest.mark.parametrize("name", [prometheus.TOKEN_FILE, prometheus.CA_FILE, prometheus.CERT_FILE])
def test_a_file_that_is_not_there_is_told_with_the_variable(monkeypatch, name):
    monkeypatch.setenv(name, "/nowhere/file")

    with pytest.raises(PlannerError, match=f"{name} names /nowhere/file, which cannot be read"):
        asked("https://127.0.0.1:9")


def test_a_key_needs_its_certificate(monkeypatch):
    monkeypatch.setenv(prometheus.KEY_FILE, "/nowhere/file")

    with pytest.raises(PlannerError, match=f"{prometheus.CERT_FILE} is not"):
        asked("https://127.0.0.1:9")
