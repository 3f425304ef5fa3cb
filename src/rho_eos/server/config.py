"""What a server decides once: where it listens, who may ask, how much it takes on."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rho_eos.config import Validated, setting
from rho_eos.errors import UserError

API_KEY_VARIABLE = "RHO_EOS_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(Validated):
    """The defaults suit one machine: reachable from itself alone, no key, no other origins."""

    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 is every interface")
    port: int = setting(8000, "port to listen on; 0 takes a free one and prints it")
    served_model_name: str | None = setting(None, "name clients ask for (default: the model's)")
    api_key: tuple[str, ...] = setting(
        (), f"key that clients must send; repeatable, also {API_KEY_VARIABLE} (comma-separated)"
    )
    api_key_file: str | None = setting(None, "file with one such key on each line")
    cors_origin: tuple[str, ...] = setting((), "web origin whose pages may call; repeatable")
    max_waiting: int = setting(256, "requests that may wait for a place; beyond, status 429")
    max_choices: int = setting(16, "texts that one request may ask for (n times prompts)")
    max_prompt_tokens: int | None = setting(None, "longest prompt (default: what the model takes)")
    max_body_bytes: int = setting(1 << 20, "largest request body; beyond, status 413")
    body_seconds: float = setting(30.0, "time a client has to send its request")
    deadline_seconds: float = setting(600.0, "time a request has to finish; beyond, status 504")
    drain_seconds: float = setting(30.0, "time running requests have to finish after SIGTERM")
    log_prompts: bool = setting(False, "write prompts to the log; without, no text of users is")

    def __post_init__(self) -> None:
        for field in ("api_key", "cors_origin"):
            value = getattr(self, field)
            several = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, field, several)
            good = all(isinstance(text, str) and text.strip() for text in several)
            self._check(field, good, "a non-empty text or a list of them")
        self._check("host", isinstance(self.host, str) and bool(self.host), "an address")
        self._check_integer("port", 0)
        self._check("port", self.port < 65536, "a port number below 65536")
        self._check_integer("max_waiting", 0)
        self._check_integer("max_choices", 1)
        self._check_integer("max_body_bytes", 1)
        self._check_integer("max_prompt_tokens", 1, optional=True)
        for field in ("body_seconds", "deadline_seconds", "drain_seconds"):
            self._check_number(field, lambda seconds: seconds > 0, "a number above 0")
        self._check_flag("log_prompts")

    def keys(self, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """All accepted keys, from wherever they were given. None at all means no key is needed."""
        named = environment.get(API_KEY_VARIABLE, "").split(",")
        keys = (*self.api_key, *named, *self._keys_in_file())
        return tuple(dict.fromkeys(key.strip() for key in keys if key.strip()))

    def _keys_in_file(self) -> list[str]:
        if self.api_key_file is None:
            return []
        try:
            keys = Path(self.api_key_file).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read api_key_file {self.api_key_file!r}: {error}") from error
        if not any(key.strip() for key in keys):
            raise UserError(f"api_key_file {self.api_key_file!r} holds no key")
        return keys
