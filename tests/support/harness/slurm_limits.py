"""Limits of a Slurm cluster for tests, and what Slurm's own rules say of jobs under them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from gpuplan.planner.sources.slurm.slurm import read_slurm
from gpuplan.planner.sources.slurm.texts import SlurmTexts

MODELS = ("h100", "a100")
_NODES, _GPUS = 12, 8
_START = 1_795_400_000
_COLUMNS = {
    "associations": ("Cluster", "Account", "User", "Partition", "ParentName", "QOS"),
    "qos": ("Name", "Flags"),
}


@dataclass
class Accounting:
    """What sacctmgr tells, with rows as dictionaries; limits of GPUs and others as sacctmgr writes them."""

    accounts: dict = field(default_factory=dict)
    """Parent and limits by account."""
    users: dict = field(default_factory=dict)
    """Limits by account, user and partition (or "")."""
    qos: dict = field(default_factory=dict)
    """Limits by QOS."""
    partitions: dict = field(default_factory=lambda: {"p": ""})
    """QOS by partition."""

    def texts(self):
        """Tables of sacctmgr, and lines of scontrol."""
        rows = [
            {"Cluster": "c", "Account": name, "ParentName": parent or "root", **limits}
            for name, (parent, limits) in self.accounts.items()
        ]
        rows += [
            {"Cluster": "c", "Account": account, "User": user, "Partition": partition, **limits}
            for (account, user, partition), limits in self.users.items()
        ]
        return {
            "associations": _table("associations", rows),
            "qos": _table("qos", [{"Name": name, **limits} for name, limits in self.qos.items()]),
            "partitions": "\n".join(
                f"PartitionName={name} PriorityTier=1 State=UP QoS={qos or 'N/A'}"
                for name, qos in self.partitions.items()
            ),
        }


def _table(kind, rows):
    names = [*_COLUMNS[kind], *sorted({key for row in rows for key in row} - set(_COLUMNS[kind]))]
    lines = ["|".join(names), *("|".join(str(row.get(name, "")) for name in names) for row in rows)]
    return "\n".join(lines) + "\n"


def slurm_job(
    number, account="a", user="u", qos="normal", partition="p", *, gpus=1, model="", node=0, **more
):
    """A record of a job; with `node` it runs there, on its first GPUs, else it waits."""
    typed = f",gres/gpu:{model}={gpus}" if model else ""
    amounts = f"cpu=4,mem=1G,node=1,billing=4,gres/gpu={gpus}{typed}"
    record = {
        "job_id": number,
        "name": f"j{number}",
        "account": account,
        "user_name": user,
        "qos": qos,
        "partition": partition,
        "job_state": "PENDING",
        "priority": 100,
        "submit_time": _START + number,
        "eligible_time": _START + number,
        "time_limit": 60,
        "node_count": 1,
        "max_nodes": 1,
        "tres_req_str": amounts,
        "tres_per_node": f"gres:gpu:{model + ':' if model else ''}{gpus}",
        "state_reason": "None",
        "requeue": True,
    }
    if node:
        held = model or MODELS[0]
        record |= {
            "job_state": "RUNNING",
            "nodes": f"n{node:02}",
            "start_time": _START + number,
            "gres_detail": [f"gpu:{held}:{gpus}(IDX:{f'0-{gpus - 1}' if gpus > 1 else 0})"],
            "tres_alloc_str": f"cpu=4,mem=1G,node=1,billing=4,gres/gpu={gpus},gres/gpu:{held}={gpus}",
        }
    return record | more


def read_limited(accounting, records, *, config="", managed=False):
    """The reading of jobs under these limits; odd nodes have GPUs of the first model."""
    nodes = [
        {
            "name": f"n{number:02}",
            "state": "idle",
            "cpus": 64,
            "real_memory": 100_000,
            "gres": f"gpu:{MODELS[1 - number % 2]}:{_GPUS}",
            "partitions": list(accounting.partitions),
            "active_features": [],
        }
        for number in range(1, _NODES + 1)
    ]
    texts = SlurmTexts(
        nodes=json.dumps({"nodes": nodes}).encode(),
        jobs=json.dumps({"jobs": records}).encode(),
        config=config,
        **accounting.texts(),
    )
    return read_slurm(texts, where=str, managed=managed)
