"""Telemetry of a real Prometheus: what it scraped of a page of DCGM exporter, or is given as its past."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuplan.models.errors import PlannerError
from gpuplan.models.health.measurement import RowRemap
from gpuplan.planner.sources.dcgm import prometheus
from gpuplan.planner.sources.dcgm.telemetry import read_telemetry
from gpuplan.planner.sources.files import snapshot_text
from tests.support.builders.build import NOW, cluster, job, replica, snapshot
from tests.support.harness.private_prometheus import every, gpu_series, line, private_prometheus
from tests.support.output.run_command import run_command

pytestmark = [pytest.mark.prometheus, pytest.mark.slow, pytest.mark.usefixtures("prometheus_here")]

COUNT = 81
"""Scrapes of 20 minutes."""


def past(index, *, host="n0", end=NOW, temperature=(54,) * COUNT, pod="a", **metrics):
    """Lines of a GPU with a temperature and further metrics, by the end of their names."""
    labels = gpu_series(host, index, pod=pod)
    lines = every("DCGM_FI_DEV_GPU_TEMP", labels, temperature, end=end)
    for name, values in metrics.items():
        series = gpu_series(host, index) if name in ("XID_ERRORS", "ROW_REMAP_FAILURE") else labels
        lines += every(f"DCGM_FI_{'PROF' if 'ACTIVE' in name else 'DEV'}_{name}", series, values, end=end)
    return lines


def hot_for(minutes, degrees=91):
    count = minutes * 4 + 1
    return [60] * (COUNT - count) + [degrees] * count


def read(tmp_path, lines, *, over=900, at=NOW):
    with private_prometheus(tmp_path, past=lines) as url:
        return {each.index: each for each in read_telemetry(url, at, over=over).gpus}


def test_all_that_a_gpu_tells_is_read(tmp_path):
    lines = [
        *past(0, GPU_UTIL=[80, 100] * 40 + [80], FB_USED=range(COUNT), FB_FREE=[80_000] * COUNT),
        *past(1, temperature=hot_for(12)),
        *past(2, GPU_UTIL=[0] * COUNT, XID_ERRORS=[0] * 75 + [13] * 6),
        *past(3, XID_ERRORS=[79] * COUNT, ECC_DBE_VOL_TOTAL=[3] * COUNT, ROW_REMAP_FAILURE=[1] * COUNT),
        *past(4, GR_ENGINE_ACTIVE=[0.5] * COUNT),
    ]

    found = read(tmp_path, lines)

    assert (found[0].host, found[0].uuid, found[0].model) == ("n0", "GPU-n0-0", "NVIDIA-H100-80GB-HBM3")
    assert (found[0].utilization, found[0].used_mib, found[0].memory_mib) == (90, 80, 80_080)
    assert (found[0].period, found[0].temperature, found[0].hot, found[0].idle) == (900, 54, {}, {})
    # Each instant counts the two minutes before it: what is hot for 12 minutes is told as 10.
    assert (found[1].temperature, found[1].hot) == (91, {91: 600})
    assert (found[2].utilization, found[2].idle, found[2].xids) == (0, {0: 900}, {13: 60})
    assert (found[3].xids, found[3].uncorrectable, found[3].row_remap) == ({79: 900}, 3, RowRemap.FAILED)
    assert (found[4].utilization, found[4].idle) == (50, {})


def test_idleness_goes_on_from_pod_to_pod_and_ends_with_a_burst(tmp_path):
    first = [0] * 40 + [None] * 41
    second = [None] * 40 + [0] * 41
    lines = [
        *past(0, temperature=first, GPU_UTIL=first, FB_USED=first),
        *past(0, temperature=second, GPU_UTIL=second, FB_USED=second, pod="b"),
        *past(1, GPU_UTIL=[0] * 60 + [100] + [0] * 20),
    ]

    found = read(tmp_path, lines)

    assert (found[0].idle, found[0].utilization, found[0].period) == ({0: 900}, 0, 900)
    # The burst is 5 minutes old, and lies in the two minutes before all instants up to three minutes ago.
    assert found[1].idle == {0: 150}


def test_what_ended_or_began_within_the_window_is_no_older_than_it_is(tmp_path):
    lines = [
        *past(0, temperature=[91] * 60 + [None] * 21),
        *past(1, temperature=[None] * 60 + [91] * 21),
        *past(2, temperature=[91] * 30 + [None] * 20 + [91] * 31),
    ]

    found = read(tmp_path, lines)

    assert found[0].hot == {}
    assert (found[1].period, found[1].hot) == (300, {91: 300})
    assert found[2].hot == {91: 450}


def test_mig_instances_count_together_and_tell_no_utilization(tmp_path):
    lines = []
    for number, used in ((3, 10_000), (4, 20_000)):
        labels = gpu_series("n0", 0, GPU_I_ID=str(number), GPU_I_PROFILE="3g.40gb")
        for name, value in (("DEV_GPU_TEMP", 60), ("DEV_FB_USED", used), ("PROF_GR_ENGINE_ACTIVE", 0.0)):
            lines += every(f"DCGM_FI_{name}", labels, [value] * COUNT, end=NOW)

    found = read(tmp_path, lines)

    assert (found[0].used_mib, found[0].utilization, found[0].idle) == (30_000, None, {})


def test_a_page_that_is_scraped_is_read(tmp_path):
    page = [line("DCGM_FI_DEV_GPU_TEMP", gpu_series("n0", index), 40 + index) for index in range(4)] + [
        line("DCGM_FI_DEV_GPU_UTIL", gpu_series("n0", index, pod="a"), "NaN" if index else 7)
        for index in range(4)
    ]
    with private_prometheus(tmp_path, page=page) as url:
        for _ in range(100):
            try:
                found = read_telemetry(url, datetime.now(UTC), over=60)
                break
            except PlannerError:  # nothing is scraped yet
                time.sleep(0.1)

    assert [(gpu.index, gpu.temperature, gpu.utilization) for gpu in found.gpus] == [
        (0, 40, 7),
        (1, 41, None),
        (2, 42, None),
        (3, 43, None),
    ]


def test_a_query_that_the_server_refuses_is_told(tmp_path):
    with private_prometheus(tmp_path) as url, prometheus.Prometheus(url) as server:
        with pytest.raises(PlannerError, match=r"400 Bad Request \(bad_data: .*parse error"):
            server.instant("max by (", NOW)
        with pytest.raises(PlannerError, match="exceeded maximum resolution"):
            server.over("up", NOW, seconds=86_400, step=1)


def test_from_prometheus_to_a_plan_that_leaves_a_hot_gpu(tmp_path):
    base = snapshot(
        nodes=cluster(1, gpu_memory_mib=0),
        jobs=[job("hot", gpus=1, at=[replica("n0", gpus=(1,))]), job("new", gpus=8)],
    )
    (tmp_path / "base.json").write_text(snapshot_text(base))
    (tmp_path / "policy.yaml").write_text("health: {heat: {celsius: 90, for: 5m, action: exclude}}\n")
    lines = [each for index in range(8) for each in past(index, temperature=hot_for(9 if index == 1 else 0))]
    with private_prometheus(tmp_path, past=lines) as url:
        words = ["snapshot", "base.json", "--merge", url, "-o", "now.json"]
        merged = run_command(words, folder=tmp_path)
        assert merged.returncode == 0, merged.stderr
    words = ["plan", "now.json", "--policy", "policy.yaml", "-o", "plan.json", "--solver", "greedy"]
    planned = run_command(words, folder=tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())

    assert planned.returncode == 0, planned.stderr
    assert "n0 GPU 1" in planned.stdout
    assert {each["type"] for each in plan["actions"] if each["job"] == "hot"} == {"release", "start"}
    (placed,) = (each for each in plan["placements"] if each["job"] == "hot")
    assert [each["index"] for each in placed["replicas"][0]["gpus"]] != [1]
    assert run_command(["verify", "plan.json", "now.json"], folder=tmp_path).returncode == 0


def certificates(folder):
    """A CA, and certificates of it for server and client: PEM files by name."""
    now = datetime.now(UTC)

    def made(name, issuer, signer, *, ca):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        certificate = builder.sign(signer or key, hashes.SHA256())
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return subject, key

    issuer, signer = made("ca", None, None, ca=True)
    for name in ("server", "client"):
        made(name, issuer, signer, ca=False)


def test_client_certificates_are_shown_to_a_server_that_asks_for_them(tmp_path, monkeypatch):
    certificates(tmp_path)
    web = {"cert_file": "server.crt", "key_file": "server.key", "client_ca_file": "ca.crt"}
    web["client_auth_type"] = "RequireAndVerifyClientCert"
    (tmp_path / "web.yml").write_text(json.dumps({"tls_server_config": web}))
    with private_prometheus(tmp_path, past=past(0), web=tmp_path / "web.yml") as url:
        named = url.replace("127.0.0.1", "localhost")
        with pytest.raises(PlannerError, match="certificate verify failed"):
            read_telemetry(named, NOW, over=900)
        monkeypatch.setenv(prometheus.CA_FILE, str(tmp_path / "ca.crt"))
        with pytest.raises(PlannerError, match=r"does not answer: .*certificate"):
            read_telemetry(named, NOW, over=900)
        monkeypatch.setenv(prometheus.CERT_FILE, str(tmp_path / "client.crt"))
        with pytest.raises(PlannerError, match=f"{prometheus.CERT_FILE} cannot be used"):
            read_telemetry(named, NOW, over=900)
        monkeypatch.setenv(prometheus.KEY_FILE, str(tmp_path / "client.key"))

        assert len(read_telemetry(named, NOW, over=900).gpus) == 1
