"""The faults of a run, chosen by a seeded random source: killed processes and servers, lost messages.

One fault at a time, from the thread that started the processes (the kernel ends them with that thread). A
killed process is restarted after a moment, as a supervisor would; nothing else is repaired.
"""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from django.conf import settings
from redis import Redis, RedisError

from rollouts.telemetry import metrics
from tests.apiserver import OwnApiServer
from tests.chaos.proxy import Proxy
from tests.controlling import BEAT, WATCHER, WORKER, Controller

USUAL_SHARE = 0.04  # share of requests with a fault
WORST_SHARE = 0.3
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 2.5
SECONDS_AWAY = 0.7  # at most, until a killed process is restarted


@dataclass
class Mischief:
    """Injects faults into a controller, its Redis and its API server."""

    controller: Controller
    proxy: Proxy
    server: OwnApiServer
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    passes: Counter[str] = field(default_factory=Counter)  # by result, as far as Redis still had them

    def __post_init__(self) -> None:
        faults: list[tuple[int, Callable[[], str]]] = [
            (3, self.kill_worker),
            (6, self.kill_part_of_a_worker),
            (3, self.kill_watcher),
            (2, self.kill_beat),
            (2, self.kill_redis),
            (1, self.lose_redis),
            (4, self.cut_connections),
            (1, self.restart_server),
            (4, self.drop_messages),
            (4, self.worsen),
        ]
        self._faults = [fault for weight, fault in faults for _ in range(weight)]

    def go_on(self, seconds: float) -> None:
        """Inject one fault after the other for some time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.done[self.chance.choice(self._faults)()] += 1
            self.revive()
            self._pause()
            self.proxy.badness.share = USUAL_SHARE

    def cease(self) -> None:
        """Stop all faults and restart everything."""
        self.proxy.badness.share = 0.0
        self.revive()

    def count_passes(self) -> None:
        """Add up the passes in the controller's metrics."""
        with contextlib.suppress(RedisError), self._redis() as redis:
            spreads = next(found for histogram, found in metrics.read(redis) if histogram is metrics.PASS_SECONDS)
            for spread in spreads:
                self.passes[spread.labels[0]] += spread.buckets[-1][1]

    def _redis(self) -> Redis:
        return Redis.from_url(self.controller.redis.url, socket_timeout=2)

    def revive(self) -> None:
        """Restart processes that have ended."""
        for one in self.controller.running:
            if not one.is_alive:
                one.start()

    def _pause(self) -> None:
        time.sleep(self.chance.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))

    def _stay_away(self) -> None:
        time.sleep(self.chance.uniform(0.0, SECONDS_AWAY))

    # --- the faults -------------------------------------------------------------------------------------------

    def kill_worker(self) -> str:
        """Kill a worker with its pool."""
        self.chance.choice(self.controller.of(WORKER)).kill()
        self._stay_away()
        return "worker killed"

    def kill_part_of_a_worker(self) -> str:
        """Kill one process of a worker's pool."""
        killed = self.chance.choice(self.controller.of(WORKER)).kill_one_child()
        return "pool process killed" if killed else "no pool process to kill"

    def kill_watcher(self) -> str:
        """Kill a watcher, the leader or a standby."""
        self.chance.choice(self.controller.of(WATCHER)).kill()
        self._stay_away()
        return "watcher killed"

    def kill_beat(self) -> str:
        """Kill a beat."""
        self.chance.choice(self.controller.of(BEAT)).kill()
        self._stay_away()
        return "beat killed"

    def kill_redis(self) -> str:
        """Kill Redis; it restarts with its data on disk."""
        self.controller.redis.kill()
        self._stay_away()
        self.controller.redis.start()
        return "Redis killed"

    def lose_redis(self) -> str:
        """Kill Redis and delete its data."""
        self.count_passes()
        self.controller.redis.kill()
        self.controller.redis.forget()
        self._stay_away()
        self.controller.redis.start()
        return "Redis lost with its data"

    def cut_connections(self) -> str:
        """Close every connection to the API server."""
        self.proxy.cut_all()
        return "all connections cut"

    def restart_server(self) -> str:
        """Kill the API server and start it again."""
        self.server.restart(seconds_away=self.chance.uniform(0.0, SECONDS_AWAY))
        return "API server restarted"

    def drop_messages(self) -> str:
        """Delete every message that no worker has received yet."""
        with contextlib.suppress(RedisError), self._redis() as redis:
            redis.delete(settings.CELERY_TASK_DEFAULT_QUEUE)
        return "messages dropped"

    def worsen(self) -> str:
        """Inject faults into many requests for a moment."""
        self.proxy.badness.share = WORST_SHARE
        self._pause()
        return "network worsened"
