"""
A private Slurm on this machine: a controller and several nodes, with character devices for GPUs.

All daemons run in the foreground as children of the test, listen on 127.0.0.1 only, and keep everything under
one folder. Nothing of the machine's own Slurm is read or changed. A watcher ends all of it if the test is
killed: jobs, and nodes that Slurm powered up, are no children of the test.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

GPUS_PER_NODE = 8
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
CLOUD = ("cloud01", "cloud02")
UNPACKED = os.environ.get("GPUPLAN_SLURM_ROOT", "")
"""Folder that unpack_slurm.sh filled; without it the Slurm that is installed is tested."""
_WAIT = 60.0
_DAEMONS = ("slurmctld", "slurmd", "munged")


def missing_slurm():
    """What of Slurm is not installed; empty if a private one can be brought up."""
    lacks = [name for name in (*_DAEMONS, "sbatch", "scontrol") if program(name) is None]
    if lacks:
        return f"not installed: {', '.join(lacks)}"
    return "" if os.getuid() == 0 else "the daemons of several nodes need root"


class PrivateSlurm:
    """The running cluster; its commands are found by everything that gets `environment`."""

    def __init__(self, root, port, environment):
        self.root, self.port, self.environment = Path(root), port, environment
        self.daemons = {}
        self._watcher = subprocess.Popen(
            [sys.executable, __file__, str(root)], stdin=subprocess.PIPE, start_new_session=True
        )

    def command(self, *words, check=True):
        """Standard output of a command of Slurm."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, cwd=self.root, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout.strip()

    def submit(self, *options, script="sleep 1000", comment="gpuplan"):
        """Submit a job that is handed to gpuplan; returns its id."""
        return self.command(
            *("sbatch", "--parsable", "--hold", "--requeue", "--output=/dev/null", f"--comment={comment}"),
            *("--time=60", "--mem=1G", *options, f"--wrap={script}"),
        )

    def states(self):
        """State and nodes of each job in the queue, by its name."""
        rows = self.command("squeue", "--noheader", "--array", "--format=%i|%T|%N").splitlines()
        return {job: (state, nodes) for job, state, nodes in (row.split("|") for row in rows)}

    def wait_until(self, holds, what):
        """Wait until a condition holds; fails after a minute."""
        deadline = time.monotonic() + _WAIT
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {_WAIT:.0f} s: {what}; {self.states()}")
            time.sleep(0.1)

    def wait_running(self, *jobs):
        """Wait until these jobs run."""
        self.wait_until(
            lambda: all(self.states().get(job, ("",))[0] == "RUNNING" for job in jobs), f"{jobs} run"
        )

    def node_states(self):
        """States of each node, by its name."""
        rows = self.command(
            "sinfo", "--noheader", "--Node", "--Format=NodeList:|,StateComplete:|"
        ).splitlines()
        return {name: state for name, state, _ in (row.split("|") for row in rows)}

    def start_daemon(self, *words):
        """Start a daemon in the foreground, in a process group of its own."""
        path = self.root / "log" / f"{Path(words[0]).name}-{len(self.daemons)}.txt"
        with path.open("w") as log:
            self.daemons[words] = subprocess.Popen(
                words, env=self.environment, stdout=log, stderr=log, start_new_session=True, cwd=self.root
            )

    def configure(self, line):
        """Set an option in slurm.conf, and have the daemons read it."""
        file = Path(self.environment["SLURM_CONF"])
        name = line.partition("=")[0]
        kept = [each for each in file.read_text().splitlines() if not each.startswith(f"{name}=")]
        file.write_text("\n".join([line, *kept]) + "\n")
        self.command("scontrol", "reconfigure")

    def kill_node(self, name):
        """Take a node away at once, as a power failure would."""
        words = next(words for words in self.daemons if words[-1] == name)
        os.killpg(self.daemons[words].pid, signal.SIGKILL)
        self.command("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=power failure")

    def down(self):
        """End all jobs and daemons."""
        with suppress(AssertionError):
            self.command("scancel", "--user=root")
        for daemon in self.daemons.values():
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        self._watcher.communicate()


@contextmanager
def private_slurm(root, before=lambda _: None):
    """Bring a cluster up, after `before` if that has daemons of its own; it is gone when the block ends."""
    root, port = Path(root), 1 + _free_ports(2 + len(NODES) + len(CLOUD))
    for folder in ("etc", "state", "log", "spool", "dev", "munge", "bin"):
        (root / folder).mkdir(parents=True)
    for folder in (root, root / "munge"):
        folder.chmod(0o755)
    key = root / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    devices = _devices(root)
    _write_configuration(root, port, devices)
    environment = {**os.environ, "SLURM_CONF": _configuration(root), "PATH": _path()}
    cluster = PrivateSlurm(root, port, environment)
    munge = root / "munge"
    try:
        cluster.start_daemon(
            *(
                program("munged"),
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={munge / 'socket'}",
            ),
            *(f"--pid-file={munge / 'pid'}", f"--log-file={munge / 'log'}", f"--seed-file={munge / 'seed'}"),
        )
        _wait_for(munge / "socket")
        before(cluster)
        cluster.start_daemon(program("slurmctld"), "-D", "-c")
        steps = ("-d", program("slurmstepd")) if UNPACKED else ()
        for node in NODES:
            cluster.start_daemon(program("slurmd"), "-D", *steps, "-N", node)
        _wait_idle(cluster)
        yield cluster
    finally:
        cluster.down()


def _configuration(root):
    return str(Path(root) / "etc" / "slurm.conf")


def _watch(root):
    """Wait until the test closes standard input, by its end too; then end what is left of its cluster."""
    sys.stdin.read()
    ours = f"SLURM_CONF={_configuration(root)}".encode()
    found = [True]
    while found:
        found = [process for process in Path("/proc").glob("[0-9]*") if _has(process, ours)]
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(root, ignore_errors=True)


def _has(process, variable):
    with suppress(OSError):
        return variable in (process / "environ").read_bytes().split(b"\0")
    return False


def _free_ports(count):
    """The first of so many ports in a row that no process listens on; others may look at the same time."""
    while True:
        # Below the range from which the kernel takes ports for clients.
        first = random.randrange(15_000, 32_000)
        with ExitStack() as opened, suppress(OSError):
            for port in range(first, first + count):
                opened.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def _path():
    return ":".join(
        (*([f"{UNPACKED}/bin"] if UNPACKED else []), os.environ.get("PATH", ""), "/usr/sbin", "/sbin")
    )


def program(name):
    """Path of a program of Slurm, or of the system; None if it is not there."""
    return shutil.which(name, path=_path())


def _wait_for(path):
    deadline = time.monotonic() + _WAIT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.02)


def _wait_idle(cluster):
    deadline = time.monotonic() + _WAIT
    while True:
        with suppress(AssertionError, ValueError):
            states = cluster.node_states()
            if all(states.get(node) == "idle" for node in NODES):
                return
        assert time.monotonic() < deadline, f"the nodes are not idle; see {cluster.root}/log"
        time.sleep(0.1)


def _devices(root):
    """Character devices for GPUs, since Slurm accepts no other files; terminals where none can be made."""
    try:
        for index in range(GPUS_PER_NODE):
            os.mknod(root / "dev" / f"nvidia{index}", 0o20666, os.makedev(1, 3))
    except PermissionError:
        return f"/dev/tty[0-{GPUS_PER_NODE - 1}]"
    return f"{root}/dev/nvidia[0-{GPUS_PER_NODE - 1}]"


def _write_configuration(root, port, devices):
    host = os.uname().nodename.partition(".")[0]
    version = subprocess.run([program("slurmctld"), "-V"], capture_output=True, text=True, check=True).stdout
    lines = [
        "ClusterName=private",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={port}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={root}/munge/socket",
        "CredType=cred/munge",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"SlurmctldPidFile={root}/slurmctld.pid",
        f"SlurmdPidFile={root}/slurmd-%n.pid",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"SlurmdLogFile={root}/log/slurmd-%n.log",
        "MailProg=/bin/true",
        f"PluginDir={UNPACKED}/plugins" if UNPACKED else "",
        "SwitchType=switch/none" if " 22." in version else "",
        "MpiDefault=none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "JobRequeue=1",
        "KillWait=2",
        "MinJobAge=600",
        "ReturnToService=2",
        "PrivateData=cloud",
        "SlurmdParameters=config_overrides",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=2,sched_min_interval=100000,sched_interval=1,bf_continue",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "PriorityType=priority/basic",
        "TopologyPlugin=topology/tree",
        "GresTypes=gpu",
        f"SuspendProgram={root}/bin/suspend",
        f"ResumeProgram={root}/bin/resume",
        "SuspendTime=600",
        "SuspendTimeout=5",
        "ResumeTimeout=30",
        f"SuspendExcNodes={','.join(NODES)}",
        "DefMemPerCPU=1000",
        "NodeName=DEFAULT CPUs=64 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000000",
    ]
    address = f"NodeHostname={host} NodeAddr=127.0.0.1"
    for number, node in enumerate((*NODES, *CLOUD), start=1):
        kind, state = ("h100", "UNKNOWN") if node in NODES else ("a100", "CLOUD")
        lines.append(
            f"NodeName={node} {address} Port={port + number} Gres=gpu:{kind}:{GPUS_PER_NODE} State={state}"
        )
    every = ",".join((*NODES, *CLOUD))
    lines.append(f"PartitionName=low Nodes={every} Default=YES MaxTime=INFINITE State=UP PriorityTier=1")
    lines.append(f"PartitionName=high Nodes={every} MaxTime=INFINITE State=UP PriorityTier=10")
    cgroups = "# none" if " 22." in version else "CgroupPlugin=disabled"
    files = {
        "slurm.conf": "\n".join(line for line in lines if line),
        "gres.conf": f"AutoDetect=off\nNodeName={','.join(NODES)} Name=gpu Type=h100 File={devices}\n"
        f"NodeName={','.join(CLOUD)} Name=gpu Type=a100 File={devices}",
        "topology.conf": "SwitchName=leaf1 Nodes=gpu[01-02]\nSwitchName=leaf2 Nodes=gpu[03-04]\n"
        "SwitchName=leaf3 Nodes=cloud[01-02]\nSwitchName=spine Switches=leaf[1-3]",
        "cgroup.conf": cgroups,
    }
    for name, text in files.items():
        (root / "etc" / name).write_text(f"{text}\n")
    steps = f" -d {program('slurmstepd')}" if UNPACKED else ""
    programs = {
        # A node that registers within the second in which it was asked counts as not rebooted.
        "resume": f'sleep 2; for n in $(scontrol show hostnames "$1"); do slurmd -b{steps} -N "$n"; done',
        "suspend": f'for n in $(scontrol show hostnames "$1"); do kill -9 $(cat {root}/slurmd-$n.pid); done',
    }
    for name, text in programs.items():
        script = root / "bin" / name
        head = f"export SLURM_CONF={root}/etc/slurm.conf PATH={_path()}"
        head += (
            "\nexec </dev/null >/dev/null 2>&1"  # or each daemon keeps the files of the one that started it
        )
        script.write_text(f"#!/bin/sh\n{head}\n{text}\nexit 0\n")
        script.chmod(0o755)


if __name__ == "__main__":
    _watch(sys.argv[1])
