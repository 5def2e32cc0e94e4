"""What time is worth: earlier and later starts, deadlines, tariffs; and leaving for a window."""

from gpuplan.models.calendar import Reservation, Tariff
from gpuplan.models.policy.policy import Prices
from tests.support.builders.build import node, placement, replica, snapshot
from tests.support.builders.time_builders import ahead, at, later, runs, waits
from tests.support.harness.verify_helpers import worth

ONE, TWO = replica("n0", gpus=(0,)), replica("n0", gpus=(1,))
NODES = [node("n0"), node("n1"), node("slow", model="A100-80GB")]
SPEEDS = {"H100-80GB": 1, "A100-80GB": 0.5}
FREE = Prices(disruption=0, migration=0, resize=0)


def earned(jobs, *held, planned=(), slots=10, earliness=0.2, prices=FREE, **about):
    """Terms of a plan that looks ahead ten hours; a GPU is worth 100, and a fifth less at the end of it."""
    policy = ahead(
        slots,
        earliness=earliness,
        prices=prices,
        disruption={"migrate": True, "checkpoint": 0, "restart": 0},
    )
    return worth(snapshot(nodes=NODES, jobs=jobs, **about), *held, policy=policy, planned=planned)


# --- completion --------------------------------------------------------------------------------------------


def started(job, slot, *replicas, **more):
    there = replicas or (ONE,)
    if slot:
        return earned([job], planned=(later("a", slot, *there),), **more)["completion"]
    return earned([job], placement("a", *there), **more)["completion"]


def test_a_start_earns_less_the_later_it_completes():
    assert [started(waits(hours=1), slot) for slot in (0, 1, 4, 9)] == [98, 96, 90, 80]
    assert [started(waits(hours=1), slot, slots=1) for slot in (0, 1)] == [100, 0]


def test_a_start_earns_for_what_is_done_within_the_horizon():
    assert started(waits(hours=4), 0) == 92
    assert started(waits(hours=4), 8) == 40
    assert started(waits(hours=20), 0) == 40


def test_a_job_that_resumes_loses_no_more_than_the_delay():
    r = runs("r", ONE, hours=1, ran=1)

    assert earned([r], placement("r", ONE))["completion"] == 0
    assert earned([r])["completion"] == -98
    # The hour that it ran is lost: it takes two.
    assert [earned([r], planned=(later("r", slot, ONE),))["completion"] for slot in (1, 4, 9)] == [
        94 - 98,
        88 - 98,
        40 - 98,
    ]


def test_a_slower_gpu_model_takes_longer_and_so_earns_less():
    job = waits(hours=4, gpu_models=SPEEDS)

    assert started(job, 0, replica("slow", gpus=(0,))) == 84
    assert started(job, 5, replica("slow", gpus=(0,))) == 50
    assert started(job, 5) == 82


def test_an_elastic_job_earns_by_the_replica():
    job = waits(hours=1, replicas=(1, 2))

    assert started(job, 0, ONE, TWO) == 196
    assert started(job, 0) == 98
    assert started(job, 4) == 90


def test_a_later_start_that_is_none_earns_nothing():
    assert started(waits(held=True), 1) == 0
    assert started(waits(), 10) == 0
    assert started(waits(), 1, replica("gone", gpus=(0,))) == 0
    assert started(waits(gpu_models=["T4"]), 1) == 0
    assert earned([waits()], planned=(later("a", 1, ONE), later("a", 2, ONE)))["completion"] == 0
    assert earned([], planned=(later("a", 1, ONE),))["completion"] == 0
    assert earned([runs("a", ONE)], planned=(later("a", 1, ONE),))["completion"] < 0
    assert earned([waits(hours=1)], placement("a", ONE), planned=(later("a", 1, ONE),))["completion"] == 98


def test_what_is_stopped_would_have_gone_on_for_what_remains():
    assert earned([runs("r", ONE, hours=1)])["completion"] == -98
    assert earned([runs("r", ONE, hours=5)])["completion"] == -90
    assert earned([runs("r", ONE, hours=20)])["completion"] == -40


def test_what_stays_earns_nothing():
    r = runs("r", ONE, hours=5)

    assert earned([r], r.placement) == {"completion": 0}


def test_a_moved_job_takes_longer_by_what_it_loses_and_by_its_new_speed():
    r = runs("r", ONE, hours=2, ran=1, gpu_models=SPEEDS)

    # Two hours remain, and the hour that it has run is lost.
    assert earned([r], placement("r", TWO))["completion"] == -96 + 94
    # Four hours on the slower model, and two for what was done in the hour.
    assert earned([r], placement("r", replica("slow", gpus=(0,))))["completion"] == -96 + 88


def test_a_job_that_shrinks_or_grows_has_other_replicas_for_what_remains():
    r = runs("r", ONE, TWO, hours=5, replicas=(1, 4))

    assert earned([r], placement("r", ONE))["completion"] == -90
    assert earned([r], placement("r", ONE, TWO, replica("n1", gpus=(0,))))["completion"] == 90


# --- deadlines ---------------------------------------------------------------------------------------------


def saved(jobs, *held, **more):
    return earned(jobs, *held, **more).get("deadlines", 0)


def test_a_start_saves_the_lateness_of_one_after_the_horizon():
    # A tenth of 100 points an hour: six hours late after the horizon.
    due = waits(hours=1, deadline=at(5))

    assert saved([due], placement("a", ONE)) == 60
    assert saved([due], planned=(later("a", 4, ONE),)) == 60
    assert saved([due], planned=(later("a", 6, ONE),)) == 40
    assert saved([due]) == 0


def test_a_stopped_job_would_have_saved_as_much():
    assert saved([runs("r", ONE, hours=1, deadline=at(5))]) == -60
    assert saved([runs("r", ONE, hours=7, deadline=at(5))]) == -100 + 20


def test_moves_and_resizes_save_nothing():
    r = runs("r", ONE, hours=1, deadline=at(1), replicas=(1, 2), gpu_models=SPEEDS)

    assert saved([r], placement("r", replica("slow", gpus=(0,)))) == 0
    assert saved([r], placement("r", ONE, TWO)) == 0


def test_an_elastic_job_is_late_once():
    due = waits(hours=1, deadline=at(5), replicas=(1, 2))

    assert saved([due], placement("a", ONE)) == saved([due], placement("a", ONE, TWO)) == 120


def test_a_start_that_is_none_saves_nothing():
    assert saved([waits(hours=1, deadline=at(5), gpu_models=["T4"])], placement("a", ONE)) == 0
    assert saved([waits(hours=1, deadline=at(5))], planned=(later("a", 10, ONE),)) == 0


# --- tariffs -----------------------------------------------------------------------------------------------


def dear(begins, hours, price=0.5, **more):
    return Tariff(name="peak", start=at(begins), duration=f"{hours}h", price_per_gpu_hour=price, **more)


def paid(jobs, *held, tariff, **more):
    return earned(jobs, *held, tariffs=[tariff], **more).get("tariffs", 0)


def test_a_start_pays_for_the_hours_under_a_tariff():
    job, peak = waits(hours=2), dear(0, 3)

    assert paid([job], placement("a", ONE), tariff=peak) == -100
    assert paid([job], planned=(later("a", 2, ONE),), tariff=peak) == -50
    assert paid([job], planned=(later("a", 3, ONE),), tariff=peak) == 0


def test_each_gpu_pays():
    both = placement("a", replica("n0", gpus=range(4)), replica("n1", gpus=range(4)))

    assert paid([waits(hours=1, gpus=4, replicas=2)], both, tariff=dear(0, 1)) == -400


def test_the_gpu_model_decides():
    on_slow = placement("a", replica("slow", gpus=(0,)))
    job = waits(hours=1, gpu_models=SPEEDS)

    assert paid([job], on_slow, tariff=dear(0, 5)) == -100
    assert paid([job], on_slow, tariff=dear(0, 5, gpu_models=["H100-80GB"])) == 0


def test_running_jobs_pay_no_more_and_get_nothing_back():
    r = runs("r", ONE, hours=5)

    assert paid([r], tariff=dear(0, 5)) == 0
    assert paid([r], placement("r", TWO), tariff=dear(0, 5)) == 0


def test_a_plan_of_this_instant_knows_no_tariffs_and_no_lateness():
    late = waits(hours=1, deadline=at(0.5))

    assert earned([late], placement("a", ONE), slots=1, tariffs=[dear(0, 5)]) == {"completion": 100}


# --- leaving for a window ----------------------------------------------------------------------------------


def left(*held, begins=0.5, nodes=("n0",), lasts=2, slots=10, **more):
    """What leaving is paid with, with a maintenance of n0 in half an hour unless said otherwise."""
    r = runs("r", ONE, **({"hours": 5} | more))
    closed = Reservation(name="m", kind="maintenance", nodes=nodes, start=at(begins), duration=f"{lasts}h")
    priced = FREE.model_copy(update={"drain": 7000})
    return earned([r], *held, slots=slots, prices=priced, reservations=[closed]).get("drain", 0)


def test_a_job_that_has_to_go_for_a_window_and_goes_is_paid_for():
    for slots in (1, 10):
        assert left(slots=slots) == 7000
        assert left(placement("r", replica("n1", gpus=(0,))), slots=slots) == 7000
        assert left(placement("r", ONE), slots=slots) == 0
        assert left(placement("r", TWO), slots=slots) == 0


def test_a_job_that_need_not_go_yet_or_at_all_is_not_paid_for():
    assert left(begins=1) == 7000
    assert left(begins=1.5) == 0
    assert left(hours=0.5) == 0
    assert left(nodes=("n1",)) == 0


def test_a_job_moved_to_a_node_that_will_be_closed_too_has_not_left():
    moved = placement("r", replica("n1", gpus=(0,)))

    assert left(moved, nodes=("n0", "n1")) == 0


def test_a_moving_job_is_there_for_longer():
    """The hour it has run is lost, so that it meets a window that it would have missed."""
    first = Reservation(name="m", kind="maintenance", nodes=["n0"], start=at(0.5), duration="2h")
    second = Reservation(name="o", kind="maintenance", nodes=["n1"], start=at(5.5), duration="1h")
    moved = placement("r", replica("n1", gpus=(0,)))
    prices = FREE.model_copy(update={"drain": 7000})

    def judged(hours):
        return earned([runs("r", ONE, hours=hours)], moved, prices=prices, reservations=[first, second])

    assert "drain" not in judged(5)
    assert judged(4)["drain"] == 7000


def test_a_job_that_shrinks_off_the_closed_nodes_has_left():
    r = runs("r", ONE, replica("n1", gpus=(0,)), hours=5, replicas=(1, 2))
    closed = Reservation(name="m", kind="maintenance", nodes=["n0"], start=at(0.5), duration="2h")
    prices = FREE.model_copy(update={"drain": 7000})

    gone = earned([r], placement("r", r.running.replicas[1]), prices=prices, reservations=[closed])
    stays = earned([r], placement("r", ONE), prices=prices, reservations=[closed])

    assert gone["drain"] == 7000
    assert "drain" not in stays
