"""What comes in a simulation: read from traces or drawn, as fast and told as truly as asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gpuplan.models.cluster import Cluster
from gpuplan.models.errors import BadInputError
from gpuplan.planner.simulate.trace import Estimates, TraceWindow, make_trace
from gpuplan.planner.sources.traces.arrivals import Arrival, NodeEvent, Outage, read_arrivals, read_outages
from tests.support.builders.build import NOW, job, node, queue, snapshot

PROFILE = Path(__file__).parents[3] / "scenarios" / "arrivals" / "profile.yaml"
CLUSTER = Cluster(nodes=(node("n0"), node("n1")))
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:00:55,3600.5,16,9999,6214e9
2017-10-10 07:00:55,10,12,120,6214e9
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,LS,100,700,100
p1,6000,12288,1,460,BE,50,1050,60
p2,6000,12288,1,460,BE,90,5000,
"""


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def arrivals(path, **more):
    return read_arrivals(path, CLUSTER, **{"seed": 0} | more)


def problems(action, *given, **more):
    with pytest.raises(BadInputError) as raised:
        action(*given, **more)
    return [(Path(each.place).name, each.message) for each in raised.value.problems]


def test_philly_jobs_come_by_time_and_wide_ones_are_gangs(written):
    found = arrivals(written("philly.csv", PHILLY))

    assert [(each.after, each.duration) for each in found] == [(0, 3601), (60, 66), (86400, 10)]
    assert [each.job.name for each in found] == ["philly-000002", "philly-000001", "philly-000003"]
    assert [(each.job.request.gpus, each.job.gang.maximum) for each in found] == [(8, 2), (1, 1), (6, 2)]
    assert [each.job.queue for each in found] == ["6214e9", "11cb48", "6214e9"]


def test_all_that_is_wrong_with_a_philly_file_is_told_at_once(written):
    path = written("philly.csv", PHILLY + "yesterday,66,1,1,q\n2017-10-09 07:00:00,long,one,1,q q\n")

    places = [place for place, _ in problems(arrivals, path)]

    assert Counter(places) == {"philly.csv:5": 1, "philly.csv:6": 3}


def test_openb_pods_come_as_they_were_created_and_run_as_long_as_they_ran(written):
    found = arrivals(written("pods.csv", OPENB))

    assert [(each.job.name, each.after) for each in found] == [("p1", 0), ("p2", 40), ("p0", 50)]
    # The end of p2 is unknown, since it was never scheduled: it takes the median of the others.
    assert [each.duration for each in found] == [990, 990, 600]


def test_a_profile_draws_its_jobs_over_its_backlog_with_the_seed():
    found = arrivals(PROFILE)

    assert len(found) == 230
    assert 0 <= found[0].after <= found[-1].after <= 12 * 3600
    assert found == arrivals(PROFILE)
    assert found != arrivals(PROFILE, seed=1)
    assert all(each.job.name.startswith("new-") and each.job.running is None for each in found)


def test_a_profile_without_a_backlog_says_what_to_write(written):
    path = written("profile.yaml", PROFILE.read_text().replace("backlog: 12h", "backlog: 0s"))

    ((_, message),) = problems(arrivals, path)
    assert "expected the time over which its jobs arrive" in message


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", "name\n"])
def test_a_file_that_is_no_known_trace_says_what_is(written, text):
    ((place, message),) = problems(arrivals, written("x.csv", text))

    assert place == "x.csv:1"
    assert "openb pod list" in message
    assert "Philly job list" in message


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    ((_, message),) = problems(arrivals, tmp_path / "none.csv")

    assert message.startswith("cannot be read: No such file")


def test_a_window_leaves_out_the_beginning_and_compresses_time():
    given = [Arrival(after, job(f"j{after}", gpus=1), 600) for after in (0, 100, 160, 400)]

    found = make_trace(
        snapshot(nodes=CLUSTER.nodes), given, window=TraceWindow(skip=100, seconds=100, load_milli=2000)
    )

    assert [(each.job.name, (each.job.submitted_at - NOW).seconds) for each in found.coming] == [
        ("j100", 0),
        ("j160", 30),
    ]


@pytest.mark.parametrize(("factor", "least", "most"), [(1.0, 600, 600), (3.0, 200, 1800)])
def test_what_is_told_is_wrong_by_at_most_the_factor_and_the_same_in_every_run(factor, least, most):
    told = [Estimates(factor, 7).of(f"j{number}", 600) for number in range(200)]

    assert all(least <= each <= most for each in told)
    assert told == [Estimates(factor, 7).of(f"j{number}", 600) for number in range(200)]
    if factor > 1:
        assert min(told) < 300
        assert max(told) > 1200
        assert told != [Estimates(factor, 8).of(f"j{number}", 600) for number in range(200)]


def test_nothing_may_be_told():
    found = make_trace(
        snapshot(), [Arrival(0, job("a", expected_duration=9), 600)], estimates=Estimates(None)
    )

    assert found.coming[0].job.expected_duration is None
    assert found.coming[0].duration == 600


def test_queues_that_the_source_lacks_are_added_without_a_quota():
    found = make_trace(snapshot(), [Arrival(0, job("a", queue="new"), 600)])

    assert found.added_queues == ("new",)
    assert [each.name for each in found.start.queues] == ["new", "q"]
    assert found.start.queues[0].quota is None


def test_arrivals_that_contradict_the_source_are_told_at_once():
    given = [
        Arrival(0, job("a"), 600),
        Arrival(0, job("b", mig={"9g.90gb": 1}), 600),
        Arrival(0, job("c", depends_on=[{"job": "unknown"}]), 600),
    ]

    found = problems(make_trace, snapshot(jobs=[job("a")], queues=[queue()]), given, place="somewhere.csv")

    assert {place for place, _ in found} == {"somewhere.csv"}
    assert len(found) == 3


def test_outages_are_read_by_time(written):
    path = written("outages.csv", "second,node,event\n900,n1,returns\n60,n1,fails\n")

    assert read_outages(path, CLUSTER) == (
        Outage(60, "n1", NodeEvent.FAILS),
        Outage(900, "n1", NodeEvent.RETURNS),
    )


def test_wrong_outages_are_told_at_once(written):
    path = written("outages.csv", "second,node,event\nsoon,n9,explodes\n")

    messages = [message for _, message in problems(read_outages, path, CLUSTER)]

    assert len(messages) == 3
    assert any("n0, n1" in message for message in messages)
    assert any("fails or returns" in message for message in messages)
