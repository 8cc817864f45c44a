"""Counters and histograms of the whole installation, kept in Redis.

Before it: `dispatch` (passes), the observer of the cluster client (API calls), the watcher and the history. After it:
the page `/metrics`, which reads them with `read`. Values that the page can query from the database or the queue are in
`rollouts.selectors.gauges`.

Each process counts in memory, from any of its threads, and adds its counts to Redis with `flush`: at the end of a pass,
about once a second in the watcher, and when the page is requested. So one scrape of any web process covers all
processes on all machines, including those that ended. While Redis is down, the counts stay in memory.
"""

import json
import logging
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from redis import Redis, RedisError

logger = logging.getLogger(__name__)

_COUNTS: Final = "grove:metrics"
_INFINITY: Final = "+Inf"
_SUM: Final = "sum"


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram, with a series for each combination of labels."""

    name: str
    help: str
    labels: tuple[str, ...]
    # The upper bounds of the buckets, without +Inf.
    bounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of a histogram for one combination of labels."""

    labels: tuple[str, ...]
    # Upper bound as text, and the number of observations up to it; the last one is +Inf with all.
    buckets: tuple[tuple[str, int], ...]
    sum: float


_CALL_BOUNDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_PASS_BOUNDS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ROLLOUT_BOUNDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)

PASS_SECONDS: Final = Histogram(
    "grove_ui_reconcile_seconds",
    "How long a pass over a workload took, by outcome.",
    ("outcome",),
    _PASS_BOUNDS,
)
CALL_SECONDS: Final = Histogram(
    "grove_ui_api_call_seconds",
    "How long calls to the Kubernetes API took, by verb, resource and code; code 0 means no answer.",
    ("cluster", "verb", "resource", "code"),
    _CALL_BOUNDS,
)
ROLLOUT_SECONDS: Final = Histogram(
    "grove_ui_rollout_seconds",
    "How long finished rollouts took, split into the time they progressed and the time they waited.",
    ("strategy", "outcome", "part"),
    _ROLLOUT_BOUNDS,
)
WATCH_SECONDS: Final = Histogram(
    "grove_ui_watch_lag_seconds",
    "How long after its arrival a change in the cluster was mirrored and its workload enqueued.",
    ("cluster",),
    _CALL_BOUNDS,
)
HISTOGRAMS: Final = (PASS_SECONDS, CALL_SECONDS, ROLLOUT_SECONDS, WATCH_SECONDS)

# Histogram, labels, and the upper bound of a bucket or "sum".
_Field = tuple[str, tuple[str, ...], str]


class Tally:
    """The counts of this process that are not in Redis yet; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[_Field, float] = defaultdict(float)

    def observe(self, histogram: Histogram, labels: Iterable[str], value: float) -> None:
        """Count one observation."""
        index = bisect_left(histogram.bounds, value)
        end = _end(histogram.bounds[index]) if index < len(histogram.bounds) else _INFINITY
        key = tuple(labels)
        with self._lock:
            self._counts[histogram.name, key, end] += 1
            self._counts[histogram.name, key, _SUM] += value

    def flush(self, redis: Redis) -> None:
        """Add the counts to Redis; keep them for the next flush if Redis does not accept them."""
        with self._lock:
            counts, self._counts = self._counts, defaultdict(float)
        if not counts:
            return
        try:
            # In a transaction: counts that are kept after an error were not added.
            with redis.pipeline(transaction=True) as pipeline:
                for field, count in counts.items():
                    pipeline.hincrbyfloat(_COUNTS, json.dumps(field), count)
                pipeline.execute()
        except RedisError as error:
            logger.debug("Keeping the counts for the next flush: %s", error)
            with self._lock:
                for field, count in counts.items():
                    self._counts[field] += count


_tally = Tally()


def observe_pass(outcome: str, seconds: float) -> None:
    """Count one pass over a workload."""
    _tally.observe(PASS_SECONDS, (outcome,), seconds)


def call_observer(cluster: str) -> Callable[[str, str, int, float], None]:
    """Return an observer for the client of a cluster; it counts verb, resource, code and seconds of each call."""

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        _tally.observe(CALL_SECONDS, (cluster, verb, resource, str(code)), seconds)

    return observe


def observe_rollout(strategy: str, outcome: str, progressing_seconds: float, waiting_seconds: float) -> None:
    """Count a finished rollout."""
    _tally.observe(ROLLOUT_SECONDS, (strategy, outcome, "progressing"), progressing_seconds)
    _tally.observe(ROLLOUT_SECONDS, (strategy, outcome, "waiting"), waiting_seconds)


def observe_watch(cluster: str, seconds: float) -> None:
    """Count the oldest change of a batch, with the time from its arrival to the mirror."""
    _tally.observe(WATCH_SECONDS, (cluster,), seconds)


def flush(redis: Redis) -> None:
    """Add the counts of this process to Redis; never raises."""
    _tally.flush(redis)


def read(redis: Redis) -> Iterator[tuple[Histogram, list[Spread]]]:
    """Yield every histogram with its current values over all processes."""
    counts: dict[str, dict[tuple[str, ...], dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for field, count in redis.hgetall(_COUNTS).items():
        name, labels, end = json.loads(field)
        counts[name][tuple(labels)][end] = float(count)
    for histogram in HISTOGRAMS:
        yield histogram, [_spread(histogram, labels, found) for labels, found in sorted(counts[histogram.name].items())]


def _spread(histogram: Histogram, labels: tuple[str, ...], found: Mapping[str, float]) -> Spread:
    buckets, total = [], 0
    for end in (*map(_end, histogram.bounds), _INFINITY):
        total += int(found.get(end, 0))
        buckets.append((end, total))
    return Spread(labels, tuple(buckets), found.get(_SUM, 0.0))


def _end(bound: float) -> str:
    return repr(bound)
