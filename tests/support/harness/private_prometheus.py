"""A private Prometheus, with a past that is given, which scrapes a page in the form of DCGM exporter."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from tests.support.doubles.prometheus_api import gpu_labels, serving


def missing_prometheus():
    """Why no private Prometheus can be started here; empty if one can."""
    absent = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


def gpu_series(host, index, *, pod="", **more):
    """Labels of a series as DCGM exporter writes them."""
    labels = gpu_labels(host, index, device=f"nvidia{index}", **more)
    del labels["instance"]  # Prometheus adds it
    return labels | ({"pod": pod, "namespace": "ml"} if pod else {})


def line(metric, labels, value, at=None):
    """One line of an exporter's page, or of a past with a time in seconds."""
    told = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{metric}{{{told}}} {value}" + ("" if at is None else f" {at}")


def every(metric, labels, values, *, end, step=15):
    """Lines with these values at each step up to `end`; None is a scrape that failed."""
    first = int(end.timestamp()) - step * (len(values) - 1)
    about = labels | {"instance": f"{labels['Hostname']}:9400"}
    return [
        line(metric, about, value, first + step * number)
        for number, value in enumerate(values)
        if value is not None
    ]


@contextlib.contextmanager
def private_prometheus(folder, *, past=(), page=None, web=None):
    """
    Start one in a folder; yields its URL.

    `past` has lines with times, `page` lines that it scrapes once a second, and `web` a web configuration
    file, with which it speaks TLS and is not waited for.
    """
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        scraped = ""
        if page is not None:
            text = "\n".join(page) + "\n"
            exporter, _ = stack.enter_context(
                serving(lambda *_: (200, text, {"Content-Type": "text/plain; version=0.0.4"}))
            )
            target = exporter.removeprefix("http://")
            scraped = f"scrape_configs: [{{job_name: dcgm, static_configs: [{{targets: ['{target}']}}]}}]\n"
        (folder / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\n{scraped}")
        data = folder / "data"
        if past:
            _write_past(past, folder, data)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        arguments = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{port}",
            *([f"--web.config.file={web}"] if web else []),
        ]
        with (folder / "prometheus.log").open("w") as log:
            server = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
        stack.callback(_stop, server)
        _wait(port, server, folder / "prometheus.log", plain=web is None)
        yield f"{'https' if web else 'http'}://127.0.0.1:{port}"


def _write_past(past, folder, data):
    names = list(dict.fromkeys(each.partition("{")[0] for each in past))
    text = "".join(
        f"# TYPE {name} gauge\n" + "".join(f"{each}\n" for each in past if each.startswith(f"{name}{{"))
        for name in names
    )
    (folder / "past.txt").write_text(f"{text}# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "past.txt", data]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def _wait(port, server, log, *, plain):
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError):
            if not plain:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.05)
    raise RuntimeError(f"Prometheus did not start:\n{log.read_text()[-2000:]}")


def _stop(server):
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
