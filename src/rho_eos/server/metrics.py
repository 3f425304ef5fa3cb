"""Prometheus metrics. One registry per server, so that several can live in a process."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

from rho_eos.base.outputs import StepRecord, Usage
from rho_eos.engine.async_engine import AsyncEngine
from rho_eos.engine.row import Row
from rho_eos.engine.store import Stores

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SHARES = tuple(share / 10 for share in range(1, 11))


class Metrics:
    """What a server counts and measures.

    Args:
        engine: The engine whose requests are counted.
        cache: The keys and values that are kept on the device, where there are any.
    """

    def __init__(self, engine: AsyncEngine, cache: Stores | None) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"rho_eos_{name}", help, labels, registry=registry)

        def histogram(name: str, help: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
            return Histogram(f"rho_eos_{name}", help, registry=registry, buckets=buckets)

        def gauge(name: str, help: str, value: Callable[[], float]) -> None:
            """A number that is read when somebody asks."""
            Gauge(f"rho_eos_{name}", help, registry=registry).set_function(value)

        self.outcomes = counter("requests", "Requests by how they ended.", "outcome")
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts that were answered.")
        self.generated_tokens = counter("generated_tokens", "Tokens of answers (E_token).")
        self.steps = counter("denoising_steps", "Forwards, counted once for each sequence in them.")
        self.positions = counter("positions_evaluated", "Prompt and canvas positions of forwards.")
        self.exact = counter("positions_exact", "The same, if no forward had used the cache.")
        self.refreshes = counter("refreshes", "Forwards of sequences over all their positions.")
        reused = "Positions of prompts whose keys and values other requests had computed."
        self.reused = counter("positions_reused", reused)
        self.committed = counter("committed_tokens", "MASKs that became tokens.")
        self.adjustments = counter("length_adjustments", "Changes of a length.", "direction")
        for direction in ("expand", "contract"):
            self.adjustments.labels(direction)
        padding = "Share of the final canvas that is not padding (E_token / N_token)."
        self.e_ratio = histogram("e_ratio", padding, _SHARES)
        self.first_token = histogram(
            "time_to_first_token_seconds", "From submission until the first token was final."
        )
        self.latency = histogram("request_seconds", "From submission to the whole answer.")
        self.queue_time = histogram("queue_seconds", "From submission to the first forward.")
        gauge("requests_running", "Being decoded now.", lambda: engine.running)
        gauge("requests_waiting", "Queued.", lambda: engine.waiting)
        if cache is not None:
            size, prefixes = cache.bytes_per_position, cache.prefixes
            gauge(
                "cache_bytes",
                "Cached keys and values.",
                lambda: (cache.used + prefixes.positions) * size,
            )
            shared = "Of these, blocks kept for other requests."
            gauge("cache_shared_bytes", shared, lambda: prefixes.positions * size)
            gauge("cache_refused", "Requests without room in the cache.", lambda: cache.refused)

    def observe_step(self, _: Row, record: StepRecord) -> None:
        """Count a step of a sequence; the engine's thread calls this."""
        self.steps.inc()
        self.positions.inc(record.computed)
        self.exact.inc(record.exact)
        self.refreshes.inc(record.computed == record.exact)
        self.committed.inc(len(record.committed))
        if record.change:
            self.adjustments.labels("expand" if record.change > 0 else "contract").inc()

    def observe_end(self, usage: Usage) -> None:
        """Count what a finished sequence has cost."""
        self.prompt_tokens.inc(usage.prompt_tokens)
        self.reused.inc(usage.positions_reused)
        self.generated_tokens.inc(usage.e_token)
        self.e_ratio.observe(usage.e_ratio)
        self.queue_time.observe(usage.seconds_waiting)
        if usage.seconds_to_first_token is not None:
            self.first_token.observe(usage.seconds_to_first_token)

    async def render(self) -> bytes:
        return generate_latest(self.registry)


def render_replicas(families: Mapping[str, Sequence[Metric]]) -> bytes:
    """The metrics of several servers as one answer: each series says which replica it is of."""
    together: dict[str, Metric] = {}
    for replica, metrics in families.items():
        for family in metrics:
            metric = together.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            metric.samples += [
                sample._replace(labels={**sample.labels, "replica": replica})
                for sample in family.samples
            ]
    return generate_latest(SimpleNamespace(collect=together.values))
