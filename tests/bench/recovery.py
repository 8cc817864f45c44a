"""How long a rollout stops when something breaks: `python -m tests.bench.recovery [row …]`. Asserts nothing.

The product runs as with `make run`, on a data folder and a sandbox of its own. In each row 12 pods are replaced one at
a time, and one event happens after a few seconds. A row shows the longest time in which no pod was created, deleted or
became Ready, and when the rollout was complete; the rows without an event, one at the start and one at the end, are the
reference for this machine. "In a pass" means that the process was frozen while the queue showed that it had the
workload. The product has two workers with one process each; rows about an only worker run it with `WORKERS=1`.

Without rows the output is the table of docs/operating.md.
"""

import contextlib
import http.client
import os
import queue
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path

from redis import Redis

from rollouts.cluster import Changed, ClusterClient, ClusterError, Deleted, Obj, RetryPolicy, Watch, kubeconfig
from rollouts.cluster.resources import PODCLIQUESETS, PODS
from rollouts.engine.model import names
from rollouts.sandbox.cluster.pod_lifecycle import READY_SECONDS_ANNOTATION
from tests.bench.controller import in_background
from tests.project.running import Product, product, product_on_a_disk_of_its_own, wait_until
from tests.scenarios.scene import is_leaving, is_ready

PODS_IN_A_ROW = 12
READY_SECONDS = 1.0
SECONDS_BEFORE = 4.0  # from the change to the event
SECONDS_OF_IT = 15.0  # how long an event lasts that does not end by itself
SECONDS_TO_END = 300.0
_DISK_MEGABYTES = 256
NAMESPACE, NAME = "default", "recovery"
KEY = f"sandbox/{NAMESPACE}/{NAME}"
CLAIMS = "grove:queue:reconcile:claims"
PROGRAMS = {"web": "uvicorn", "worker": "celery -q -A grove_ui worker", "beat": "grove_ui beat", "watcher": "watch"}
PATIENCE = RetryPolicy(deadline=60.0)


@dataclass
class Ground:
    """A running product with the workload that is updated."""

    running: Product
    data_dir: Path  # where this process finds the data of the product
    cluster: ClusterClient
    redis: Redis
    tag: int = 1

    def pids(self, program: str) -> list[int]:
        """The processes of a program of the product."""
        return _pids(self.running, PROGRAMS.get(program, program))

    def workers(self) -> dict[int, list[int]]:
        """The parent process of each worker with the processes of its pool."""
        found = {pid: _children(pid) for pid in self.pids("worker")}
        return {parent: children for parent, children in found.items() if children}

    def catch_in_a_pass(self) -> int:
        """Freeze the process that works on the workload."""
        deadline = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < deadline:
            claim = self.redis.hget(CLAIMS, KEY)
            if claim is None:
                continue
            pid = int(str(claim).rpartition("/")[2])
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            if self.redis.hget(CLAIMS, KEY) == claim == self.redis.hget(CLAIMS, KEY):
                return pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        raise LookupError("no pass was caught")


# --- what happens --------------------------------------------------------------------------------------------------


def kill(program: str) -> Callable[[Ground], None]:
    """Return a function that kills a program with its children."""

    def happen(ground: Ground) -> None:
        _signal(ground.pids(program), signal.SIGKILL)

    return happen


def kill_a_child_in_a_pass(ground: Ground) -> None:
    _signal([ground.catch_in_a_pass()], signal.SIGKILL)


def kill_all_children_in_a_pass(ground: Ground) -> None:
    ground.catch_in_a_pass()
    _signal([child for children in ground.workers().values() for child in children], signal.SIGKILL)


def kill_the_worker_in_a_pass(ground: Ground) -> None:
    parent = _parent(ground.catch_in_a_pass())
    _signal([parent], signal.SIGKILL)


def kill_all_workers_in_a_pass(ground: Ground) -> None:
    ground.catch_in_a_pass()
    _signal(list(ground.workers()), signal.SIGKILL)


def freeze_a_child_in_a_pass(ground: Ground) -> None:
    pid = ground.catch_in_a_pass()
    time.sleep(SECONDS_OF_IT)
    _signal([pid], signal.SIGCONT)


def freeze_the_worker_in_a_pass(ground: Ground) -> None:
    parent = _parent(ground.catch_in_a_pass())
    pids = [parent, *_children(parent)]
    _signal(pids, signal.SIGSTOP)
    time.sleep(SECONDS_OF_IT)
    _signal(pids, signal.SIGCONT)


def freeze_the_parents(ground: Ground) -> None:
    pids = list(ground.workers())
    _signal(pids, signal.SIGSTOP)
    time.sleep(SECONDS_OF_IT)
    _signal(pids, signal.SIGCONT)


def flush_redis(ground: Ground) -> None:
    ground.redis.flushall()


def fill_redis(ground: Ground) -> None:
    ground.redis.config_set("maxmemory", 1)
    time.sleep(SECONDS_OF_IT)
    ground.redis.config_set("maxmemory", 0)


def hold_the_write_lock(ground: Ground) -> None:
    path = ground.data_dir / "grove.sqlite3"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(SECONDS_OF_IT)
        holder.execute("ROLLBACK")


def fill_the_disk(ground: Ground) -> None:
    """Fill the file system of the data folder."""
    filler = ground.data_dir / "filler"
    with filler.open("wb", buffering=0) as full, contextlib.suppress(OSError):
        while full.write(bytes(2**20)):
            pass
    time.sleep(SECONDS_OF_IT)
    filler.unlink()


def delete_the_database(ground: Ground) -> None:
    for path in ground.data_dir.glob("grove.sqlite3*"):
        path.unlink()


def nothing(_ground: Ground) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    title: str
    happen: Callable[[Ground], None]
    workers: int = 2  # of the product, as by default
    has_own_disk: bool = False  # a small file system for the data folder

    @property
    def product(self) -> tuple[bool, int]:
        """What the product of this row needs; rows in sequence that need the same share one."""
        return self.has_own_disk, self.workers


ROWS = {
    "undisturbed": Row("nothing", nothing),
    "child": Row("`kill -9` a process of a worker, in a pass", kill_a_child_in_a_pass),
    "children": Row("`kill -9` the processes of both workers, in a pass", kill_all_children_in_a_pass),
    "worker": Row("`kill -9` one worker of two, in a pass", kill_the_worker_in_a_pass),
    "workers": Row("`kill -9` both workers, in a pass (Celery starts again)", kill_all_workers_in_a_pass),
    "frozen-child": Row("a process of a worker frozen for 15 s, in a pass", freeze_a_child_in_a_pass),
    "frozen-worker": Row("one worker of two frozen for 15 s, in a pass", freeze_the_worker_in_a_pass),
    "frozen-parents": Row("the parent processes of both workers frozen for 15 s", freeze_the_parents),
    "web": Row("`kill -9` web", kill("web")),
    "beat": Row("`kill -9` beat", kill("beat")),
    "watcher": Row("`kill -9` watcher", kill("watcher")),
    "sandbox": Row("`kill -9` sandbox", kill("rollouts.sandbox")),
    "redis": Row("`kill -9` redis", kill("redis.sock")),
    "flush": Row("Redis emptied (`FLUSHALL`)", flush_redis),
    "full-redis": Row("Redis at its memory limit for 15 s", fill_redis),
    "lock": Row("SQLite's write lock held for 15 s", hold_the_write_lock),
    "deleted": Row("database deleted", delete_the_database),
    "undisturbed-again": Row("nothing, at the end", nothing),
    "only-worker": Row(
        "`WORKERS=1`: `kill -9` the only worker, in a pass (Celery starts again)", kill_the_worker_in_a_pass, workers=1
    ),
    "full-disk": Row("disk full for 15 s", fill_the_disk, has_own_disk=True),
}


# --- measuring -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Measure the chosen rows, or all, and print them as a table in Markdown."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "grove_ui.settings")
    wanted = [ROWS[name] for name in sys.argv[1:] or ROWS]
    _write("| event | longest stop | rollout complete after | load |\n|---|---|---|---|\n")
    for (has_own_disk, workers), rows in groupby(wanted, key=lambda row: row.product):
        with _ground(workers, has_own_disk=has_own_disk) as ground:
            for row in rows:
                stop, total = _measure(ground, row)
                _write(f"| {row.title} | {stop:.1f} s | {total:.1f} s | {os.getloadavg()[0]:.1f} |\n")


def _measure(ground: Ground, row: Row) -> tuple[float, float]:
    """Roll the workload with the event of the row; return the longest stop and the duration."""
    try:
        with _listening(ground.cluster) as heard:
            ground.tag += 1
            _change_image(ground.cluster, f"example:v{ground.tag}")
            started = time.monotonic()
            with ThreadPoolExecutor(1) as pool:
                happening = pool.submit(_happen_later, ground, row.happen)
                moments = _follow(heard, f"example:v{ground.tag}", started)
                happening.result()
        return max(after - before for before, after in pairwise(moments)), moments[-1] - started
    finally:
        _settle(ground)


def _happen_later(ground: Ground, happen: Callable[[Ground], None]) -> None:
    time.sleep(SECONDS_BEFORE)
    happen(ground)


def _follow(heard: "queue.SimpleQueue[tuple[float, Obj | None]]", image: str, started: float) -> list[float]:
    """Return the times of all changes, until all pods are Ready with the image."""
    moments, current = [started], set[str]()
    while len(current) < PODS_IN_A_ROW:
        at, pod = heard.get(timeout=SECONDS_TO_END)
        moments.append(at)
        if pod is not None and pod["spec"]["containers"][0]["image"] == image and is_ready(pod) and not is_leaving(pod):
            current.add(pod["metadata"]["uid"])
    return moments


@contextlib.contextmanager
def _listening(cluster: ClusterClient) -> Iterator["queue.SimpleQueue[tuple[float, Obj | None]]"]:
    """Yield every step of the workload's pods with its time: created, Ready, terminating, removed."""
    heard: queue.SimpleQueue[tuple[float, Obj | None]] = queue.SimpleQueue()
    watch = Watch(cluster, PODS, namespace=NAMESPACE, labels=f"{names.PART_OF}={NAME}")
    known: dict[str, tuple[bool, bool]] = {}

    def listen() -> None:
        for note in watch:
            if isinstance(note, Changed):
                uid, state = note.obj["metadata"]["uid"], (is_ready(note.obj), is_leaving(note.obj))
                if known.get(uid) != state:
                    known[uid] = state
                    heard.put((time.monotonic(), note.obj))
            elif isinstance(note, Deleted):
                heard.put((time.monotonic(), None))

    with in_background(listen, watch):
        yield heard


def _settle(ground: Ground) -> None:
    """Wait until the product is ready again and shows the rollout as ended."""

    def is_well() -> bool:
        try:
            status = ground.cluster.get(PODCLIQUESETS, NAME, namespace=NAMESPACE).get("status") or {}
        except ClusterError:
            return False
        return bool((status.get("updateProgress") or {}).get("updateEndedAt")) and _is_ready(ground.running)

    wait_until(is_well, SECONDS_TO_END)
    time.sleep(2)


def _is_ready(running: Product) -> bool:
    connection = http.client.HTTPConnection("localhost", running.port, timeout=30)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def _ground(workers: int, *, has_own_disk: bool) -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="gr-", ignore_cleanup_errors=True) as folder:
        start = partial(product_on_a_disk_of_its_own, megabytes=_DISK_MEGABYTES) if has_own_disk else product
        with start(Path(folder), DATABASE_URL="", SANDBOX_TERMINATION_SECONDS="0.5", WORKERS=str(workers)) as running:
            running.wait_until_it_answers()
            # Only the processes of the product see a disk of its own.
            seen_by_web = Path(f"/proc/{_pids(running, PROGRAMS['web'])[0]}/root{folder}")
            data_dir = seen_by_web if has_own_disk else Path(folder)
            cluster = ClusterClient(kubeconfig(data_dir / "sandbox.kubeconfig"), retry_policy=PATIENCE)
            with Redis.from_url(f"unix://{data_dir / 'redis.sock'}", decode_responses=True) as redis:
                ground = Ground(running, data_dir, cluster, redis)
                cluster.create(PODCLIQUESETS, _workload())
                wait_until(lambda: _count_ready(cluster) == PODS_IN_A_ROW, SECONDS_TO_END)
                time.sleep(5)
                yield ground


def _pids(running: Product, words: str) -> list[int]:
    return [pid for pid, line in running.processes().items() if words in line]


def _workload() -> Obj:
    container = {"name": "main", "image": "example:v1"}
    spec = {"roleName": "a", "replicas": PODS_IN_A_ROW, "minAvailable": 1, "podSpec": {"containers": [container]}}
    clique = {"name": "a", "annotations": {READY_SECONDS_ANNOTATION: str(READY_SECONDS)}, "spec": spec}
    return {
        "apiVersion": PODCLIQUESETS.api_version,
        "kind": PODCLIQUESETS.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"replicas": 1, "template": {"cliques": [clique]}},
    }


def _count_ready(cluster: ClusterClient) -> int:
    pods = cluster.list(PODS, namespace=NAMESPACE, labels=f"{names.PART_OF}={NAME}").items
    return sum(is_ready(pod) for pod in pods)


def _change_image(cluster: ClusterClient, image: str) -> None:
    path = "/spec/template/cliques/0/spec/podSpec/containers/0/image"
    change = [{"op": "replace", "path": path, "value": image}]
    cluster.patch_json(PODCLIQUESETS, NAME, change, namespace=NAMESPACE)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
