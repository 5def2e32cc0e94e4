"""A stand-in for the HTTP API of Prometheus, with answers in the form that a real one recorded."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_FIRST_METRIC = re.compile(r"DCGM_[A-Z_]+")


def gpu_labels(host, index, *, uuid=None, model="NVIDIA H100 80GB HBM3", **more):
    """Labels by which a series tells its GPU."""
    about = {"Hostname": host, "gpu": str(index), "modelName": model, "instance": f"{host}:9400"}
    return about | {"UUID": uuid or f"GPU-{host}-{index}"} | more


class Api:
    """
    What the stand-in knows: values by metric, each with the labels of the series.

    An instant query of a metric answers with its values, a range query with them at each instant; a list of
    values is the last of these instants. PromQL is not evaluated: `test_live.py` has a real Prometheus.
    """

    def __init__(self, at):
        self.at = at.timestamp()
        self.values = {}
        self.warnings = []
        self.asked = []

    def set(self, metric, labels, value):
        self.values.setdefault(metric, []).append((labels, value))

    def answer(self, path, query):
        kind = "vector" if path.endswith("/query") else "matrix"
        if " offset " in query["query"]:  # nothing is that old, so that the oldest sample is asked for
            return json.dumps({"status": "success", "data": {"resultType": kind, "result": []}})
        metric = _FIRST_METRIC.search(query["query"])[0] + (
            "@oldest" if "timestamp(" in query["query"] else ""
        )
        found = self.values.get(metric, [])
        result = [self._series(labels, value, kind, query) for labels, value in found]
        data = {"resultType": kind, "result": [each for each in result if each]}
        return json.dumps(
            {"status": "success", "data": data} | ({"warnings": self.warnings} if self.warnings else {})
        )

    def _series(self, labels, value, kind, query):
        values = value if isinstance(value, list) else [value]
        if kind == "vector":
            values = [one for one in values if one is not None]
            return {"metric": labels, "value": [self.at, str(values[-1])]}
        step, end = float(query["step"]), float(query["end"])
        count = int((end - float(query["start"])) / step) + 1
        values = values if isinstance(value, list) else values * count
        times = [end - step * back for back in reversed(range(len(values)))]
        return {
            "metric": labels,
            "values": [[at, str(one)] for at, one in zip(times, values, strict=True) if one is not None],
        }


@contextlib.contextmanager
def serving(answer):
    """
    Serve answers; yields the URL and the headers of each request.

    `answer(path, parameters)` gives a body, or a status with a body and headers.
    """
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append({key.lower(): value for key, value in self.headers.items()})
            parts = urlsplit(self.path)
            found = answer(parts.path, {key: values[-1] for key, values in parse_qs(parts.query).items()})
            status, body, headers = found if isinstance(found, tuple) else (200, found, {})
            body = body if isinstance(body, bytes) else body.encode()
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
