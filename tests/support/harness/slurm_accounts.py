"""Accounting for a private Slurm: a database server and a slurmdbd, under the folder of the cluster."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from tests.support.harness.private_slurm import UNPACKED, missing_slurm, private_slurm, program

_PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacctmgr")
_WAIT = 60.0


def missing_accounts():
    """What is not installed; empty if a private Slurm with accounts can be brought up."""
    lacks = [name for name in _PROGRAMS if program(name) is None]
    return missing_slurm() or (f"not installed: {', '.join(lacks)}" if lacks else "")


@contextmanager
def private_accounts(root):
    """Bring a cluster up that enforces limits; it is gone when the block ends."""
    with private_slurm(root, before=_start_accounting) as cluster:
        cluster.manage = lambda *lines: _manage(cluster, lines)
        yield cluster


def _manage(cluster, lines):
    """Give sacctmgr these commands, all to one process: each new one takes half a second."""
    done = subprocess.run(
        (program("sacctmgr"), "--immediate", "--quiet"),
        input="".join(f"{line}\n" for line in lines),
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or done.stderr.strip():
        raise AssertionError(f"sacctmgr: {done.stdout}{done.stderr}")


def _start_accounting(cluster):
    """Start the database and slurmdbd, and have slurm.conf name them; the controller is not up yet."""
    root = Path(cluster.root)
    database = root / "database"
    database.mkdir()
    install = (program("mariadb-install-db"), "--no-defaults", f"--datadir={database}", "--user=root")
    subprocess.run((*install, "--auth-root-authentication-method=normal"), check=True, capture_output=True)
    sock = root / "db.sock"
    cluster.start_daemon(
        *(program("mariadbd"), "--no-defaults", "--user=root", f"--datadir={database}"),
        *(f"--socket={sock}", "--skip-networking", f"--pid-file={root}/db.pid"),
        *("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"),
    )
    _until(lambda: _ran("mariadb", "--no-defaults", f"--socket={sock}", "-e", "SELECT 1"), "a database")
    port = cluster.port - 1
    host = os.uname().nodename.partition(".")[0]
    lines = (
        "AuthType=auth/munge",
        f"AuthInfo=socket={root}/munge/socket",
        f"DbdHost={host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={port}",
        "SlurmUser=root",
        f"PluginDir={UNPACKED}/plugins" if UNPACKED else "",
        f"LogFile={root}/log/slurmdbd.log",
        f"PidFile={root}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        "StorageLoc=slurm_acct_db",
    )
    file = root / "etc" / "slurmdbd.conf"
    file.write_text("\n".join(line for line in lines if line) + "\n")
    file.chmod(0o600)
    cluster.environment["MYSQL_UNIX_PORT"] = str(sock)
    cluster.start_daemon(program("slurmdbd"), "-D")
    conf = root / "etc" / "slurm.conf"
    replaced = conf.read_text().replace(
        "AccountingStorageType=accounting_storage/none",
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
        f"AccountingStoragePort={port}\nAccountingStoragePass={root}/munge/socket\nAccountingStorageTRES=gres/gpu,gres/gpu:h100\n"
        f"AccountingStorageEnforce=limits",
    )
    conf.write_text(replaced)
    manage = ("sacctmgr", "--immediate", "add", "cluster", "private")
    _until(lambda: _ran(*manage, environment=cluster.environment), "slurmdbd")


def _ran(*words, environment=None):
    done = subprocess.run((program(words[0]), *words[1:]), capture_output=True, check=False, env=environment)
    return done.returncode == 0


def _until(holds, what):
    deadline = time.monotonic() + _WAIT
    while not holds():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.2)
