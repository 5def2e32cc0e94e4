"""What DCGM exporter measured of GPUs, from recorded answers of a Prometheus."""

from __future__ import annotations

import tracemalloc

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.health.measurement import RowRemap
from gpuplan.planner.sources.dcgm.merge import merge_telemetry
from gpuplan.planner.sources.dcgm.telemetry import read_telemetry
from tests.support.builders.build import NOW, cluster, snapshot
from tests.support.doubles.prometheus_api import Api, gpu_labels, serving

TEMPERATURE, UTILIZATION, ACTIVE = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)
USED, XID, XIDS = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"
ONE = {"UUID": "GPU-n0-0"}


@pytest.fixture
def api():
    """A Prometheus that has watched GPU 0 of n0 for all of the window."""
    found = Api(NOW)
    found.set(TEMPERATURE, gpu_labels("n0", 0), [54])
    found.set(f"{TEMPERATURE}@oldest", ONE, NOW.timestamp() - 1000)
    return found


def read(api, *, over=900):
    with serving(api.answer) as (url, _):
        return read_telemetry(url, NOW, over=over)


def only(api):
    (gpu,) = read(api).gpus
    return gpu


def test_a_gpu_is_known_by_host_index_and_uuid(api):
    gpu = only(api)

    assert (gpu.host, gpu.index, gpu.uuid, gpu.model) == ("n0", 0, "GPU-n0-0", "NVIDIA-H100-80GB-HBM3")
    assert (gpu.temperature, gpu.period) == (54, 900)
    assert (gpu.utilization, gpu.used_mib, gpu.hot, gpu.idle, gpu.xids) == (None, None, {}, {}, {})


@pytest.mark.slow
def test_use_and_errors_are_read(api):
    for metric, value in (
        (UTILIZATION, [42.4]),
        (USED, [61_000.0]),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", [2]),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", [1]),
    ):
        api.set(metric, ONE, value)

    gpu = only(api)

    assert (gpu.utilization, gpu.used_mib) == (42, 61_000)
    assert (gpu.uncorrectable, gpu.row_remap) == (2, RowRemap.PENDING)


@pytest.mark.slow
def test_a_gpu_watched_for_less_than_the_window_says_so(api):
    api.values[f"{TEMPERATURE}@oldest"] = [(ONE, NOW.timestamp() - 100)]

    assert only(api).period == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "hot"),
    [
        ([90] * 31, {90: 900}),
        ([90.9, 91.9], {90: 30, 91: 0}),
        ([90, None, 91, 91], {91: 30}),
        ([90, 90, None], {}),
        ([2**31, 90], {90: 0}),
        ([90, 2**63], {}),
    ],
)
def test_heat_lasts_up_to_now_and_ends_at_a_gap(api, values, hot):
    api.values[TEMPERATURE] = [(gpu_labels("n0", 0), values)]

    assert only(api).hot == hot


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "idle"),
    [([0] * 31, {0: 900}), ([0.4, 0, 0], {0: 30, 1: 60}), ([0, 3, 0], {0: 0, 3: 60}), ([0, 0, None], {})],
)
def test_idleness_lasts_and_a_little_work_is_no_idleness(api, values, idle):
    api.values[UTILIZATION] = [(ONE, values)]

    assert only(api).idle == idle


@pytest.mark.slow
def test_xids_have_the_time_since_they_came(api):
    api.set(XID, ONE | {"err_code": "13"}, [13, 13])
    api.set(XID, ONE | {"err_code": "79"}, [79] * 31)
    api.set(XIDS, ONE | {"xid": "31"}, [2] * 5)
    api.set(XID, ONE, [0, 10**9])

    # The stand-in tells by the first name of a metric, which is that of the last XID.
    api.values[XID] += api.values.pop(XIDS)
    assert only(api).xids == {13: 30, 31: 120, 79: 900}


@pytest.mark.slow
def test_values_of_what_a_gpu_does_not_tell_are_unknown(api):
    for metric, value in ((TEMPERATURE, 2**63 - 14), (UTILIZATION, 2**31 - 16), (USED, 2**63 - 14)):
        api.values[metric] = [(gpu_labels("n0", 0), [value])]
    api.set("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", ONE, [2**63 - 14])
    api.set("DCGM_FI_DEV_ROW_REMAP_FAILURE", ONE, [2**63 - 14])

    gpu = only(api)

    assert (gpu.temperature, gpu.utilization, gpu.used_mib, gpu.uncorrectable, gpu.row_remap) == (
        None,
        None,
        None,
        0,
        None,
    )


@pytest.mark.slow
def test_series_of_one_gpu_from_two_exporters_count_together(api):
    api.set(TEMPERATURE, gpu_labels("n0", 0, instance="10.0.0.9:9400"), [61])

    assert only(api).temperature == 61


@pytest.mark.slow
def test_without_the_exporters_host_name_that_of_the_discovery_counts(api):
    api.values[TEMPERATURE] = [
        (gpu_labels("", 0, uuid="a", node="k8s-1", instance="10.0.0.1:9400"), [50]),
        (gpu_labels("", 0, uuid="b", instance="gpu7.example.org:9400"), [50]),
        (gpu_labels("", 0, uuid="c", instance=""), [50]),
        (gpu_labels("n1", "nvidia0", uuid="d"), [50]),
        (gpu_labels("n1", 0, uuid="") | {"UUID": ""}, [50]),
    ]

    found = read(api)

    assert [gpu.host for gpu in found.gpus] == ["gpu7.example.org", "k8s-1"]
    assert len(found.notes) == 3


@pytest.mark.slow
def test_series_of_gpus_that_are_not_known_are_left_out(api):
    api.set(UTILIZATION, {"UUID": "GPU-other"}, [7])
    api.set(UTILIZATION, {}, [7])

    assert only(api).utilization is None


@pytest.mark.slow
def test_a_server_without_gpus_is_told_with_the_time():
    with serving(Api(NOW).answer) as (url, _), pytest.raises(PlannerError) as error:
        read_telemetry(url, NOW, over=900)

    assert "15m up to 2026-11-20T12:00:00Z" in str(error.value)
    assert "DCGM exporter" in str(error.value)


@pytest.mark.slow
def test_warnings_of_the_server_are_notes(api):
    api.warnings = ["store a is down"]

    assert read(api).notes == ("store a is down",)


@pytest.mark.slow
@pytest.mark.parametrize(("over", "step"), [(60, 30), (900, 30), (3600, 60), (86_400, 1440)])
def test_a_window_has_at_most_sixty_steps(api, over, step):
    asked = []

    def answer(path, query):
        asked.append(query)
        return api.answer(path, query)

    with serving(answer) as (url, _):
        read_telemetry(url, NOW, over=over)

    ranges = [query for query in asked if "step" in query]
    assert {query["step"] for query in ranges} == {str(step)}
    assert {float(query["end"]) - float(query["start"]) for query in ranges} == {over}


@pytest.mark.slow
def test_two_thousand_gpus_take_little_memory():
    """About 22 MB."""
    api = Api(NOW)
    for number in range(2_000):
        host, index = f"n{number // 8}", number % 8
        gpu = {"UUID": f"GPU-{host}-{index}"}
        api.set(TEMPERATURE, gpu_labels(host, index), [91] * 31 if number % 10 == 0 else [75] * 31)
        api.set(f"{TEMPERATURE}@oldest", gpu, NOW.timestamp() - 1000)
        api.set(UTILIZATION, gpu, [0] * 31 if number % 10 == 1 else [None, 80])
        api.set(USED, gpu, [40_000])
    base = snapshot(nodes=cluster(250))

    with serving(api.answer) as (url, _):
        tracemalloc.start()
        found = read_telemetry(url, NOW, over=900)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
    merged = merge_telemetry(base, found)

    assert len(merged.snapshot.measured) == 2_000
    assert sum(bool(each.idle) for each in merged.snapshot.measured) == 200
    assert peak < 100
