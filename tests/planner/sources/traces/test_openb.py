import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.errors import BadInputError
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.sources.traces.openb import PRIORITY, TRACE_START, OpenbQos, read_openb
from tests.support.output.golden import golden_section
from tests.support.seeds import examples

TEXTS = Path(__file__).with_name("texts.golden.txt")
NODES = """\
sn,cpu_milli,memory_mib,gpu,model
gpu-a,96000,393216,8,G2
gpu-b,8000,61440,1,T4
cpu-a,32500,262144,0,
"""
POD_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
PODS = (
    POD_HEADER
    + """\
whole,12000,16384,8,1000,,LS,Running,0,500,20
share,3152,5600,1,810,V100M32|V100M16|V100M32,BE,Running,100,300,100
cpu,8000,30517,0,0,,Burstable,Pending,200,400,
late,1000,0,1,1000,,Guaranteed,Running,300,,310
"""
)
TRACE = os.environ.get("GPUPLAN_OPENB_DIR")
needs_trace = pytest.mark.skipif(not TRACE, reason="GPUPLAN_OPENB_DIR names no folder with the openb trace")


@pytest.fixture
def read(tmp_path):
    def read_texts(nodes=NODES, pods=PODS, **more):
        for name, text in (("nodes.csv", nodes), ("pods.csv", pods)):
            content = text if isinstance(text, bytes) else text.encode()
            (tmp_path / name).write_bytes(content)
        return read_openb(tmp_path / "nodes.csv", tmp_path / "pods.csv", **more)

    return read_texts


def problems(read, **texts):
    """What is wrong, by file name and line, without the folder."""
    with pytest.raises(BadInputError) as caught:
        read(**texts)
    return [f"{Path(problem.place).name}: {problem.message}" for problem in caught.value.problems]


def seconds(instant):
    return int((instant - TRACE_START).total_seconds())


def test_a_node_has_its_gpus_with_the_memory_of_a_known_model(read):
    nodes = read().cluster.node_by_name

    assert (nodes["gpu-b"].gpus.model, nodes["gpu-b"].gpus.count, nodes["gpu-b"].gpus.memory_mib) == (
        "T4",
        1,
        15360,
    )
    assert nodes["gpu-a"].gpus.memory_mib == 0
    assert nodes["cpu-a"].gpus is None
    assert (nodes["cpu-a"].cpu_milli, nodes["cpu-a"].memory_mib) == (32500, 262144)


def test_a_pod_asks_for_whole_gpus_for_a_share_or_for_none(read):
    jobs = read().job_by_name

    assert (jobs["whole"].request.gpus, jobs["whole"].request.gpu_milli) == (8, 0)
    assert (jobs["share"].request.gpus, jobs["share"].request.gpu_milli) == (0, 810)
    assert not jobs["cpu"].request.needs_gpu
    assert (jobs["share"].request.cpu_milli, jobs["share"].request.memory_mib) == (3152, 5600)


def test_the_models_a_pod_lists_are_equally_fast(read):
    jobs = read().job_by_name

    assert jobs["share"].gpu_models == {"V100M16": 1000, "V100M32": 1000}
    assert jobs["whole"].gpu_models == {}


def test_quality_of_service_becomes_queue_priority_and_label(read):
    snapshot = read()

    assert {job.name: job.queue for job in snapshot.jobs} == {
        "whole": "ls",
        "share": "be",
        "cpu": "burstable",
        "late": "guaranteed",
    }
    assert snapshot.job_by_name["share"].labels == {"openb/qos": "BE"}
    assert all(job.priority == PRIORITY[OpenbQos(job.labels["openb/qos"])] for job in snapshot.jobs)


def test_best_effort_is_least_important_and_guaranteed_most():
    assert PRIORITY[OpenbQos.BE] < PRIORITY[OpenbQos.BURSTABLE] < PRIORITY[OpenbQos.LS]
    assert PRIORITY[OpenbQos.LS] == PRIORITY[OpenbQos.GUARANTEED] == max(PRIORITY.values())


def test_without_an_instant_every_pod_waits_once_the_last_was_created(read):
    snapshot = read()

    assert len(snapshot.jobs) == 4
    assert seconds(snapshot.taken_at) == 300
    assert not any(job.running for job in snapshot.jobs)


@pytest.mark.parametrize(
    ("at", "alive"),
    [
        (0, {"whole"}),
        (99, {"whole"}),
        (100, {"whole", "share"}),
        (200, {"whole", "share", "cpu"}),
        (299, {"whole", "share", "cpu"}),
        (300, {"whole", "cpu", "late"}),
        (400, {"whole", "late"}),
        (500, {"late"}),
    ],
)
def test_an_instant_has_the_pods_created_by_then_and_not_yet_deleted(read, at, alive):
    snapshot = read(at=at)

    assert {job.name for job in snapshot.jobs} == alive
    assert snapshot.taken_at == TRACE_START + timedelta(seconds=at)
    assert all(job.submitted_at <= snapshot.taken_at and job.running is None for job in snapshot.jobs)


def test_a_duration_is_known_only_of_pods_that_were_scheduled_and_deleted(read):
    durations = {job.name: job.expected_duration for job in read().jobs}

    assert durations == {"whole": 480, "share": 200, "cpu": None, "late": None}


def test_a_variant_with_five_columns_has_all_pods_waiting_from_second_0(read):
    snapshot = read(pods="name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,1,460\nb,1000,1,0,0\n")

    assert [(job.name, job.queue, job.priority) for job in snapshot.jobs] == [
        ("a", "unspecified", 0),
        ("b", "unspecified", 0),
    ]
    assert snapshot.taken_at == TRACE_START
    assert not list(inconsistencies(snapshot))


def test_an_instant_needs_the_time_of_creation(read):
    found = problems(read, pods="name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", at=5)

    assert found[0].splitlines() == [
        "pods.csv:1: has no column creation_time; found cpu_milli, gpu_milli, memory_mib, name, num_gpu.",
        "  Give a pod list of the trace, such as openb_pod_list_default.csv, with its header line.",
    ]


def test_columns_may_stand_in_any_order_and_further_ones_are_passed_over(read):
    rows = [line.split(",") for line in NODES.splitlines()]
    turned = "".join(",".join([*reversed(row), "more"]) + "\n" for row in rows)

    assert read(nodes=turned) == read()


def test_windows_line_ends_a_byte_order_mark_and_blank_lines_change_nothing(read):
    odd = b"\xef\xbb\xbf" + PODS.replace("\n", "\r\n").encode() + b"\r\n\r\n"

    assert read(pods=odd) == read()


def test_a_file_with_a_header_alone_is_an_empty_list(read):
    snapshot = read(nodes=NODES.splitlines()[0], pods=POD_HEADER)

    assert not snapshot.cluster.nodes
    assert not snapshot.jobs
    assert [queue.name for queue in snapshot.queues] == ["be", "burstable", "guaranteed", "ls"]


def test_all_problems_of_both_files_are_told_at_once_with_their_lines(read):
    nodes = NODES + "gpu-a,x,1,1,T4\n" + "n5,1,1,129,T4\n" + "n6,1,1,1,\n" + "n7,1,1,0,T4\n" + "n8,1\n"
    pods = (
        POD_HEADER
        + "a b,1,1,0,0,,LS,Running,0,1,0\n"
        + "p3,1,1,2,500,,LS,Running,0,1,0\n"
        + "p4,1,1,1,0,,LS,Running,0,1,0\n"
        + "p5,1,1,0,10,,LS,Running,0,1,0\n"
        + "p6,1,-1,0,0,T4||x,QQ,Running,9,1,5\n"
        + "p7,1,1,1.5,1000,,LS,Running,0,1,0\n"
    )

    found = problems(read, nodes=nodes, pods=pods)

    text = "".join(f"{line}\n" for line in sorted(found))
    assert text == golden_section(TEXTS, "all problems of both files", text)


def test_missing_columns_are_told_alone_however_wrong_the_rows_are(read):
    found = problems(read, nodes="sn,cpu_milli\n" + NODES)

    assert [problem.partition("; ")[0] for problem in found] == [
        "nodes.csv:1: has no columns gpu, memory_mib, model"
    ]


def test_a_column_that_is_wrong_throughout_does_not_fill_the_screen(read):
    pods = POD_HEADER + "".join(f"p{n},1,?,0,0,,LS,Running,0,1,0\n" for n in range(1000))

    found = problems(read, pods=pods)

    assert len(found) == 21
    assert found[-1] == "pods.csv: 980 more problems of 'memory_mib'."


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ("", "pods.csv:1: has no columns cpu_milli, gpu_milli, memory_mib, name, num_gpu; found none."),
        ("name,name\n", "pods.csv:1: has column name twice; expected each column once."),
        (b"name\n\xff\n", "pods.csv:2: has byte 0xff; expected text in UTF-8."),
        (b"\xef\xbb\xbfname\n\xff\n", "pods.csv:2: has byte 0xff; expected text in UTF-8."),
    ],
)
def test_what_is_no_pod_list_is_refused(read, pods, found):
    assert [problem.splitlines()[0] for problem in problems(read, pods=pods)] == [found]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInputError) as caught:
        read_openb(tmp_path / "none.csv", tmp_path)

    assert [str(problem).splitlines()[0] for problem in caught.value.problems] == [
        f"{tmp_path}/none.csv: cannot be read: No such file or directory.",
        f"{tmp_path}: cannot be read: Is a directory.",
    ]


@pytest.mark.parametrize("at", [-1, 10**12])
def test_an_instant_outside_of_any_trace_is_refused(read, at):
    assert problems(read, at=at) == [
        f"--at: is {at}; expected 0 to 316224000 seconds since the trace's start."
    ]


_CELLS = ["", "0", "1", "8", "1000", "1e3", "-1", "9" * 30, "٣", "LS", "T4|G2", "n", "x" * 300]


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    rows=st.lists(
        st.lists(st.sampled_from(_CELLS) | st.text(max_size=5), min_size=10, max_size=12), max_size=4
    ),
    at=st.none() | st.integers(),
)
def test_any_text_gives_a_consistent_snapshot_or_is_refused(tmp_path_factory, rows, at):
    folder = tmp_path_factory.getbasetemp()
    (folder / "nodes.csv").write_text(NODES)
    content = POD_HEADER + "\n".join(",".join(row) for row in rows)
    (folder / "pods.csv").write_bytes(content.encode("utf-8", "surrogatepass"))

    with suppress(BadInputError):
        assert not list(inconsistencies(read_openb(folder / "nodes.csv", folder / "pods.csv", at=at)))


@pytest.mark.slow
@needs_trace
def test_the_trace_has_the_published_size():
    snapshot = read_openb(
        Path(TRACE) / "openb_node_list_all_node.csv", Path(TRACE) / "openb_pod_list_default.csv"
    )

    nodes, jobs = snapshot.cluster.nodes, snapshot.jobs
    assert (len(nodes), sum(node.gpu_count for node in nodes), len(jobs)) == (1523, 6212, 8152)
    assert len({node.gpu_model for node in nodes if node.gpus}) == 7
    assert len({job.request.model_dump_json() for job in jobs}) == 151
    assert sum(job.request.total_gpu_milli for job in jobs) == 6_086_800
    assert not list(inconsistencies(snapshot))


@pytest.mark.slow
@needs_trace
def test_an_instant_of_the_trace_has_a_part_of_its_pods():
    files = Path(TRACE) / "openb_node_list_gpu_node.csv", Path(TRACE) / "openb_pod_list_default.csv"
    everything = read_openb(*files)

    snapshot = read_openb(*files, at=11_000_000)

    assert 0 < len(snapshot.jobs) < len(everything.jobs)
    assert all(everything.job_by_name[job.name] == job for job in snapshot.jobs)
    assert not list(inconsistencies(snapshot))


@pytest.mark.slow
@needs_trace
@pytest.mark.parametrize(
    ("variant", "pods", "named"),
    [("gpushare40", 8152, 0), ("gpuspec10", 8152, 732), ("multigpu20", 8324, 0)],
)
def test_the_variants_of_the_pod_list_are_read_too(variant, pods, named):
    snapshot = read_openb(
        Path(TRACE) / "openb_node_list_all_node.csv", Path(TRACE) / f"openb_pod_list_{variant}.csv"
    )

    assert len(snapshot.jobs) == pods
    assert sum(bool(job.gpu_models) for job in snapshot.jobs) == named
    assert not list(inconsistencies(snapshot))
