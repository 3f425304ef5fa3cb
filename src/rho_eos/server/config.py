"""Settings of a server: where it listens, who may ask, how much it takes on."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings, Texts, setting
from rho_eos.base.small_files import read_small
from rho_eos.decoding.params import LONGEST

API_KEY_VARIABLE = "RHO_EOS_API_KEY"
WEIGHTS_KEY_VARIABLE = "RHO_EOS_WEIGHTS_KEY"
MONTH = 31 * 24 * 3600.0  # in seconds; the longest time that any setting takes


class ServerConfig(Settings):
    """The defaults suit one machine: it alone reaches the server, without a key."""

    host: str = setting(
        "127.0.0.1", "address to listen on; 0.0.0.0 is every interface", min_length=1
    )
    port: int = setting(8000, "port to listen on; 0 takes a free one and prints it", ge=0, le=65535)
    served_model_name: str | None = setting(
        None, "name clients ask for (default: the model's)", min_length=1
    )
    api_key: Texts = setting(
        (), f"key that clients must send; repeatable, also {API_KEY_VARIABLE} (comma-separated)"
    )
    api_key_file: str | None = setting(None, "file with one such key on each line", min_length=1)
    weights_key: str | None = setting(
        None,
        f"key with which a trainer may replace the weights (POST /v1/weights; also "
        f"{WEIGHTS_KEY_VARIABLE}); without one there is no such route",
        min_length=1,
    )
    weights_folder: str | None = setting(
        None, "folder from which POST /v1/weights may read weights by path", min_length=1
    )
    max_weights_bytes: int = setting(
        2**31, "largest body of POST /v1/weights; beyond, status 413", ge=1, le=2**40
    )
    cors_origin: Texts = setting((), "web origin whose pages may call; repeatable")
    allowed_host: Texts = setting(
        (), "name that clients may call this server by; repeatable, *.example.org and * are any"
    )
    max_waiting: int = setting(
        256, "requests that may wait for a place; beyond, status 429", ge=0, le=10**6
    )
    max_choices: int = setting(
        16, "texts that one request may ask for (n times prompts)", ge=1, le=4096
    )
    max_prompt_tokens: int | None = setting(
        None, "longest prompt (default: what the model takes)", ge=1, le=LONGEST
    )
    max_prompt_characters: int | None = setting(
        None,
        "longest prompt in characters, checked before it is tokenised (default: 16 for each token)",
        ge=1,
        le=2**30,
    )
    max_body_bytes: int = setting(
        1 << 20, "largest request body; beyond, status 413", ge=1, le=2**30
    )
    body_seconds: float = setting(30.0, "time a client has to send its request", gt=0, le=MONTH)
    deadline_seconds: float = setting(
        600.0, "time a request has to finish; beyond, status 504", gt=0, le=MONTH
    )
    drain_seconds: float = setting(
        30.0, "time running requests have to finish after SIGTERM", gt=0, le=MONTH
    )
    docs: bool = setting(
        False, "an interactive description of the API at /docs; its page loads scripts from a CDN"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "lowest level that is logged; requests of probes are logged at debug"
    )
    log_prompts: bool = setting(
        False, "write prompts to the log, which otherwise holds no text of users"
    )

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        """Refuse a key of spaces: it would count as none, and the server would be open to all."""
        for name in ("api_key", "cors_origin"):
            self._check(name, all(map(str.strip, getattr(self, name))), "texts that are not blank")
        names = all(re.fullmatch(r"\*|(\*\.)?[^*\s]+", host) for host in self.allowed_host)
        self._check("allowed_host", names, "names, *.name or *")
        return self

    def key_of_weights(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The key of whoever may replace the weights; None: nobody may."""
        key = (self.weights_key or environment.get(WEIGHTS_KEY_VARIABLE, "")).strip()
        if key and key in self.keys(environment):
            raise UserError("weights_key is also an api_key, but takes one of its own")
        return key or None

    def keys(self, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """All accepted keys, from wherever they were given. None at all means no key is needed."""
        keys = [*self.api_key, *environment.get(API_KEY_VARIABLE, "").split(",")]
        if (file := self.api_key_file) is not None:
            try:
                in_file = read_small(Path(file)).decode().split("\n")
            except (OSError, UnicodeDecodeError) as error:
                sentence = f"cannot read api_key_file {file!r}: {error}"
                raise UserError(sentence, "api_key_file") from error
            if not any(key.strip() for key in in_file):
                raise UserError(f"api_key_file {file!r} holds no key", "api_key_file")
            keys += in_file
        return tuple(dict.fromkeys(key.strip() for key in keys if key.strip()))
