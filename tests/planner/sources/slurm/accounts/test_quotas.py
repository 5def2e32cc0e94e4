"""Limits on what jobs have together: a plan within the quotas is within Slurm's limits, on random ones."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import MILLI
from gpuplan.models.validation.checks import inconsistencies
from tests.support.harness.slurm_limits import MODELS, Accounting, read_limited, slurm_job

USERS = ("u", "v", "w")
GPUS = ("gres/gpu", "gres/gpu:h100")


def limits(chance, *names, most=12, share=0.4):
    """Random limits on GPUs and other things, in these columns."""
    found = {}
    for name in names:
        if chance.random() > share:
            continue
        if "Jobs" in name:
            found[name] = str(chance.randint(1, 9))
        else:
            tres = chance.sample([*GPUS, *GPUS, *GPUS, "cpu", "node"], chance.randint(1, 2))
            found[name] = ",".join(f"{each}={chance.randint(0, most)}" for each in tres)
    return found


def world(seed, *, of_accounts_only=False):
    """Random accounts, users, QOS and jobs."""
    chance = random.Random(seed)
    names = [f"a{number}" for number in range(chance.randint(1, 5))]
    columns = () if of_accounts_only else ("GrpTRES", "GrpJobs", "MaxTRESPU", "MaxJobsPU", "MaxTRESPA")
    qos = {f"q{number}": limits(chance, *columns, share=0.3) for number in range(chance.randint(1, 3))}
    partitions = {"p": chance.choice(["", *qos]), "r": ""}
    accounting = Accounting(
        {
            name: (chance.choice(names[:number]) if number else None, limits(chance, "GrpTRES", "GrpJobs"))
            for number, name in enumerate(names)
        },
        {(chance.choice(names), user, ""): limits(chance, "GrpTRES", "MaxJobs") for user in (*USERS, *USERS)},
        qos,
        partitions,
    )
    if of_accounts_only:
        accounting = Accounting(
            {name: (parent, _gpus_only(of)) for name, (parent, of) in accounting.accounts.items()},
            {key: _gpus_only(of) for key, of in accounting.users.items()},
        )
    records = []
    for number in range(1, chance.randint(2, 14)):
        account, user, _ = chance.choice(sorted(accounting.users))
        records.append(
            slurm_job(
                *(number, account, user, chance.choice(sorted(accounting.qos) or ["normal"])),
                chance.choice(sorted(accounting.partitions)),
                gpus=chance.randint(1, 4),
                model=MODELS[0],
                node=2 * number - 1 if number <= 6 and chance.random() < 0.4 else 0,
            )
        )
    return accounting, records


def _gpus_only(of):
    kept = [each for each in of.get("GrpTRES", "").split(",") if each.startswith("gres/gpu")]
    return {"GrpTRES": ",".join(kept)} if kept else {}


def amounts(text):
    return {name: int(count) for name, _, count in (each.rpartition("=") for each in text.split(",") if each)}


def slurms_rules(accounting, record):
    """
    Limits that count a job, as (what, resource, most, in force), from Slurm's page on resource limits.

    Those of the first QOS are in force, then those of the second, then those of the association and above.
    """
    account, user = record["account"], record["user_name"]
    levels = []
    for name in dict.fromkeys((accounting.partitions[record["partition"]], record["qos"])):
        of = accounting.qos.get(name, {})
        level = [
            (f"qos {name}", "group", tres, most) for tres, most in amounts(of.get("GrpTRES", "")).items()
        ]
        level += [(f"qos {name}", "group", "jobs", int(of["GrpJobs"]))] if "GrpJobs" in of else []
        for column, holder in (("MaxTRESPU", user), ("MaxTRESPA", account)):
            level += [
                (f"qos {name} {holder}", column, tres, most)
                for tres, most in amounts(of.get(column, "")).items()
            ]
        if "MaxJobsPU" in of:
            level.append((f"qos {name} {user}", "user", "jobs", int(of["MaxJobsPU"])))
        levels.append(level)
    own = accounting.users.get((account, user, ""), {})
    level = [(f"of {account} {user}", "user", "jobs", int(own["MaxJobs"]))] if "MaxJobs" in own else []
    places = [(f"of {account} {user}", own)]
    above = account
    while above:
        places.append((f"of {above}", accounting.accounts[above][1]))
        above = accounting.accounts[above][0]
    for place, of in places:
        level += [(place, "group", tres, most) for tres, most in amounts(of.get("GrpTRES", "")).items()]
        level += [(place, "group", "jobs", int(of["GrpJobs"]))] if "GrpJobs" in of else []
    levels.append(level)
    taken = set()
    for each in levels:
        for what, kind, tres, most in each:
            yield (what, kind), tres, most, (kind, tres) not in taken
        taken |= {(kind, tres) for _, kind, tres, _ in each}


def allowed(accounting, records, started):
    """True if Slurm's limits allow these jobs beside the running ones."""
    use, most = Counter(), {}
    for record in records:
        runs = record["job_state"] == "RUNNING"
        if not runs and record["name"] not in started:
            continue
        has = amounts(record["tres_req_str"].replace("mem=1G,", "")) | {"jobs": 1}
        for what, tres, limit, in_force in slurms_rules(accounting, record):
            # Jobs of a QOS with another limit are started whatever the limit of the account is.
            if runs or in_force:
                use[what, tres] += has.get(tres, 0)
            if in_force and not runs:
                most[what, tres] = limit
    return all(use[key] <= limit for key, limit in most.items())


def within_quotas(snapshot, started):
    """True if the quotas of the snapshot allow these jobs beside the running ones."""
    for model in (ALL_MODELS, MODELS[0]):
        tree = queue_limits(snapshot.queues, model)
        own, before = Counter(), Counter()
        for job in snapshot.jobs:
            if job.running or job.name in started:
                own[job.queue] += job.request.gpus * MILLI
            if job.running:
                before[job.queue] += job.request.gpus * MILLI
        after, was = tree.usage(own), tree.usage(before)
        # Running jobs stay, whatever the limit is now.
        if any(
            limit is not None and after[name] > limit and after[name] > was[name]
            for name, limit in tree.limit.items()
        ):
            return False
    return True


def some(chance, snapshot):
    """Random pending jobs that are not held, by name and by the name of their record."""
    free = [job.name for job in snapshot.jobs if job.running is None and not job.held]
    chosen = set(chance.sample(free, chance.randint(0, len(free))))
    return chosen, {f"j{name}" for name in chosen}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400))
def test_what_the_quotas_allow_slurm_allows(seed):
    accounting, records = world(seed)
    snapshot = read_limited(accounting, records).snapshot
    chance = random.Random(-seed - 1)

    assert not list(inconsistencies(snapshot))
    for _ in range(8):
        chosen, names = some(chance, snapshot)
        if within_quotas(snapshot, chosen):
            assert allowed(accounting, records, names)


@pytest.mark.slow
def test_the_random_worlds_have_jobs_of_all_kinds():
    """Held for a limit, kept back by a quota of an account, and by one of a QOS."""
    held = by_account = by_qos = 0
    for seed in range(200):
        accounting, records = world(seed)
        snapshot = read_limited(accounting, records).snapshot
        held += any("does not allow it now" in job.hold_reason for job in snapshot.jobs)
        free = {job.name for job in snapshot.jobs if job.running is None and not job.held}
        if not within_quotas(snapshot, free):
            of_qos = any("qos:" in snapshot.job_by_name[name].queue for name in free)
            by_qos += of_qos
            by_account += not of_qos

    assert min(held, by_account, by_qos) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_limits_of_accounts_on_gpus_are_quotas_exactly(seed):
    accounting, records = world(seed, of_accounts_only=True)
    snapshot = read_limited(accounting, records).snapshot
    chance = random.Random(-seed - 1)

    for _ in range(8):
        chosen, names = some(chance, snapshot)
        assert within_quotas(snapshot, chosen) == allowed(accounting, records, names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_the_queue_of_a_job_depends_on_no_other_job(seed):
    """Or a plan would be stale as soon as another job comes or goes."""
    accounting, records = world(seed)
    whole = read_limited(accounting, records).snapshot.job_by_name

    for record in records:
        (alone,) = read_limited(accounting, [record]).snapshot.jobs
        assert alone.queue == whole[alone.name].queue


def test_a_limit_gives_no_right_to_gpus():
    accounting = Accounting({"a": (None, {"GrpTRES": "gres/gpu=8"})}, {("a", "u", ""): {}})
    snapshot = read_limited(accounting, [slurm_job(1)]).snapshot

    assert all(each.quota is None or not each.quota.nominal for each in snapshot.queues)


def test_a_limit_of_each_user_of_a_qos_is_a_queue_of_each():
    accounting = Accounting(
        {"a": (None, {"GrpTRES": "gres/gpu=20"}), "b": (None, {})},
        {("a", "u", ""): {}, ("a", "v", ""): {}, ("b", "w", ""): {}},
        {"normal": {"MaxTRESPU": "gres/gpu=8"}},
    )
    users = (("a", "u"), ("a", "v"), ("b", "w"))
    snapshot = read_limited(accounting, [slurm_job(n, *of) for n, of in enumerate(users, 1)]).snapshot

    assert [job.queue for job in snapshot.jobs] == ["a/qos:normal/u", "a/qos:normal/v", "b/qos:normal/w"]
    assert queue_limits(snapshot.queues, ALL_MODELS).limit == {
        "a": 20 * MILLI,
        "a/qos:normal/u": None,
        "a/qos:normal/v": None,
        "b/qos:normal/w": None,
        **{f"slurm/qos:normal/{user}": 8 * MILLI for user in USERS},
        "slurm/all": None,
        "slurm/unlimited": None,
    }


def test_a_qos_with_a_limit_is_no_part_of_its_accounts():
    """Its running jobs still count there: they leave less for the others."""
    accounting = Accounting(
        {"a": (None, {"GrpTRES": "gres/gpu=8"})},
        {("a", "u", ""): {}},
        {"normal": {}, "urgent": {"GrpTRES": "gres/gpu=40"}},
    )
    jobs = [slurm_job(1, qos="urgent", gpus=6, node=1), slurm_job(2, qos="urgent"), slurm_job(3)]
    snapshot = read_limited(accounting, jobs).snapshot

    assert [job.queue for job in snapshot.jobs] == ["a/qos:urgent", "a/qos:urgent", "a"]
    limit = queue_limits(snapshot.queues, ALL_MODELS).limit
    assert (limit["a"], limit["slurm/qos:urgent"]) == (2 * MILLI, 40 * MILLI)
