"""Scale-out: the app of `rho_eos.server` as a Ray Serve deployment, one engine per replica.

Ray's proxy takes the connections and spreads requests over the replicas; each replica is the whole
server, so endpoints, limits and streams are the same. A replica whose worker has died fails its
health check, and Ray replaces it.
"""

import logging
import os
import signal
import socket
import threading
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve

from rho_eos.base.errors import UserError
from rho_eos.base.plugins import absolute
from rho_eos.cluster import start_cluster
from rho_eos.config import EngineConfig
from rho_eos.server.config import ServerConfig

logger = logging.getLogger(__name__)

APPLICATION = "rho-eos"
DEPLOYMENT = "replica"
METRICS_SECONDS = 5.0  # less than Prometheus waits
_SPARE = 64  # requests per replica beyond those that decode or wait: probes, metrics, refusals


class Replica:
    """What Ray asks of a replica beyond its app."""

    app: FastAPI  # set by `serve.ingress`

    def check_health(self) -> None:
        if not self.app.state.service.engine.alive:
            raise RuntimeError("the engine's worker died")

    async def measurements(self) -> tuple[str, list[Any]]:
        """Who this is, and its metrics."""
        registry = self.app.state.service.metrics.registry
        return serve.get_replica_context().replica_tag, list(registry.collect())


async def metrics_of_all() -> bytes:
    """For `/metrics`, whichever replica is asked: what all of them measure."""
    from rho_eos.server.errors import ApiError
    from rho_eos.server.metrics import render_replicas

    asked = serve.get_deployment_handle(DEPLOYMENT, APPLICATION).broadcast("measurements")
    try:
        found = await asked.results_async(timeout_s=METRICS_SECONDS, return_exceptions=True)
    except TimeoutError as error:
        raise ApiError(503, "a replica did not tell its metrics", "unavailable") from error
    # One that has just died has none; Ray is starting another.
    return render_replicas(dict(each for each in found if not isinstance(each, BaseException)))


def deployment(engine_options: dict[str, Any], config: ServerConfig, replicas: int) -> Any:
    """The application for `serve.run`; models are loaded by the replicas, not here."""
    # Files and variables of this machine need not exist where a replica runs.
    config = config.replaced(api_key=config.keys(), api_key_file=None)
    engine = EngineConfig.from_mapping(engine_options)
    engine = engine.replaced(plugin=absolute(engine.plugin))

    def build_app() -> FastAPI:
        from rho_eos.llm import LLM
        from rho_eos.server.app import create_app
        from rho_eos.server.run import log_to_stderr, spare_the_collector
        from rho_eos.server.service import Service

        log_to_stderr(config.log_level)
        llm = LLM(**dict(engine))
        llm.warm_up()
        service = Service(llm, config)
        service.render_metrics = metrics_of_all
        spare_the_collector()
        return create_app(service)

    decorate = serve.deployment(
        name=DEPLOYMENT,
        num_replicas=replicas,
        # The app refuses what is too much, with a reason; Ray must not queue before it does.
        max_ongoing_requests=engine.max_rows + config.max_waiting + _SPARE,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(_wants_gpu(engine.device))},
        graceful_shutdown_timeout_s=config.drain_seconds,
        health_check_period_s=2.0,
    )
    return decorate(serve.ingress(build_app)(Replica)).bind()


def serve_on_ray(engine_options: dict[str, Any], config: ServerConfig, replicas: int) -> None:
    """Serve until SIGTERM or SIGINT, on the cluster of RAY_ADDRESS or on one of our own."""
    if replicas < 1:
        raise UserError(f"replicas is {replicas}, but takes an integer of at least 1")
    stopping = threading.Event()
    if os.environ.get("RAY_ADDRESS"):
        ray.init(logging_level=logging.WARNING)
    else:
        # Ray gives up on its proxy after five seconds, which a busy machine needs to start it.
        os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
        start_cluster(replicas)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with socket.create_server((config.host, 0)) as free:  # Ray must be told a port
        port = config.port or free.getsockname()[1]
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": config.host, "port": port})
        serve.run(deployment(engine_options, config, replicas), name=APPLICATION)
        logger.info("serving with %d replicas at http://%s:%d", replicas, config.host, port)
        stopping.wait()
        serve.delete(APPLICATION)  # returns when the replicas have finished what they had
    finally:
        serve.shutdown()
        ray.shutdown()


def _wants_gpu(device: str) -> bool:
    import torch

    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
