"""Many requests on many machines: a Ray Data pool of actors, one engine in each.

    requests → blocks → actors: threads hand requests to the one engine → outputs, as they finish

A block is one request (a few, where there are thousands), and an actor works on as many at a time
as its engine has rows: so rows join and leave its batch as they do on one machine. An actor that
dies is started again, and the blocks it held are given out again, a few times each. Only the driver
writes files, and the job it runs takes every id once, whatever Ray delivers.
"""

import logging
import os
import pickle
import socket
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output
from rho_eos.base.plugins import absolute
from rho_eos.cluster import Attempts, start_cluster
from rho_eos.config import EngineConfig
from rho_eos.engine.errors import RequestFailedError
from rho_eos.engine.request import Handle
from rho_eos.files.jobs import Executor
from rho_eos.models.loading import open_checkpoint
from rho_eos.models.placement import choose_device, name_of, stored_dtype, ways_to_compute
from rho_eos.text.ask import Request
from rho_eos.text.preparation import Preparer

MOST_BLOCKS = 4096  # Ray keeps books on every block
RETRIES = 5  # of a request whose actor died: one that kills its machine must not do so for ever
REACH_SECONDS = 5.0

Block = dict[str, np.ndarray]


class EngineActor:
    """One engine, called from many threads at once, which all advance each other's rows."""

    def __init__(self, engine_options: dict[str, Any], attempts: Any) -> None:
        from rho_eos.llm import LLM

        self._attempts = attempts
        self._engine = LLM(**engine_options).engine

    def __call__(self, block: Block) -> Block:
        requests: list[Request] = [pickle.loads(item) for item in block["request"]]
        begun = ray.get(self._attempts.begin.remote([request.id for request in requests]))
        handles = []
        for request, attempt in zip(requests, begun, strict=True):
            handles.append(Handle(request))
            if attempt <= RETRIES + 1:
                self._engine.admit(handles[-1])
            else:
                reason = f"the actor died {attempt - 1} times while it was decoded"
                handles[-1].close(Output(request.id, "", FinishReason.ERROR, error=reason))
        for handle in handles:
            with suppress(RequestFailedError):  # its output says so
                self._engine.finish([handle])
        return {"output": np.array([pickle.dumps(each.output) for each in handles], object)}


@dataclass(frozen=True, slots=True)
class Pool:
    """So many actors of one model, on the cluster this process is connected to."""

    engine_options: dict[str, Any]
    actors: int
    gpus: int  # of each actor

    @property
    def executor(self) -> Executor:
        """Decodes the requests of a job. Only the tokenizer is loaded here."""
        config = EngineConfig.from_mapping(self.engine_options)
        return Executor(Preparer(open_checkpoint(config), config), self.decode)

    def decode(self, requests: Iterable[Request]) -> Generator[Output, None, None]:
        """An output for every request, as they finish; after a death one may come twice."""
        items = [{"request": pickle.dumps(request)} for request in requests]
        if not items:
            return
        rows = EngineConfig.from_mapping(self.engine_options).max_rows
        # The counter's process needs no core of its own.
        counting = ray.remote(Attempts).options(num_cpus=0, max_restarts=-1, max_task_retries=-1)
        blocks = ray.data.from_items(items, override_num_blocks=min(len(items), MOST_BLOCKS))
        answered = blocks.map_batches(
            EngineActor,
            batch_size=None,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(
                size=self.actors,
                max_tasks_in_flight_per_actor=2 * rows,
                max_concurrent_calls_per_actor=rows,
                enable_true_multi_threading=True,
            ),
            fn_constructor_args=(self.engine_options, counting.remote()),
            num_cpus=1,
            num_gpus=self.gpus,
        )
        for block in answered.iter_batches(
            batch_size=None, batch_format="numpy", prefetch_batches=0
        ):
            for item in block["output"]:
                yield pickle.loads(item)


def open_pool(address: str, actors: int | None, engine_options: dict[str, Any]) -> Pool:
    """A pool on the cluster at `address`; `auto`: one that runs here, else one of our own.

    Without a number of actors there is one for every GPU, or one for every machine.
    """
    if actors is not None and actors < 1:
        raise UserError(f"ray-actors is {actors}, but takes an integer of at least 1")
    options = _same_everywhere(engine_options)
    if address != "auto":
        _check_reachable(address)
    if not ray.is_initialized():
        _connect(address, actors or 1)
    # The commands show progress in samples; Ray's own is in blocks.
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    device = options.get("device", "auto")
    gpus = int(ray.cluster_resources().get("GPU", 0)) if device.startswith(("auto", "cuda")) else 0
    if device.startswith("cuda") and not gpus:
        raise UserError(f"device is {device!r}, but the cluster has no GPU")
    machines = sum(node["Alive"] for node in ray.nodes())
    return Pool(options, actors or gpus or machines, gpus=int(gpus > 0))


def _same_everywhere(engine_options: dict[str, Any]) -> dict[str, Any]:
    """The options with what this machine would run. Elsewhere `auto` could mean another precision,
    and a branch of a Hub model another commit by then."""
    config = EngineConfig.from_mapping(engine_options)
    folder = Path(config.model).expanduser()
    model = str(folder.absolute()) if folder.is_dir() else config.model
    remote = config.device.startswith("cuda")  # not for this machine to check
    device = choose_device("auto" if remote else config.device)
    checkpoint = open_checkpoint(config)
    _, compute = ways_to_compute(config.dtype, device, stored_dtype(checkpoint))[0]
    return {
        **engine_options,
        "model": model,
        **({"adapter": [a.pinned for a in checkpoint.adapters]} if config.adapter else {}),
        "dtype": name_of(compute) if config.dtype == "auto" else config.dtype,
        "plugin": absolute(config.plugin),
        "revision": checkpoint.commit or config.revision,
    }


def _connect(address: str, actors: int) -> None:
    if address == "auto":
        try:
            ray.init(os.environ.get("RAY_ADDRESS", "auto"), logging_level=logging.WARNING)
        except ConnectionError:
            start_cluster(actors)
        return
    try:
        ray.init(address, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"cannot join the Ray cluster at {address!r}: {reason}") from error


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody answers; Ray itself would try for a long time."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdigit()):
        raise UserError(f"--ray is {address!r}, but takes HOST:PORT, ray://HOST:PORT or nothing")
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address}: {error}") from error
