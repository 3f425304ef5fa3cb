"""How much a request may ask for: counted before anything of it is tokenised.

A text that is refused for its length must cost next to nothing: tokenising a megabyte takes a
second and a hundred megabytes.
"""

from typing import Any

from rho_eos.prompts import Prompt
from rho_eos.server.config import ServerConfig
from rho_eos.server.errors import bad_request

#: More characters than any tokenizer makes of a token in a text that means something.
CHARACTERS_PER_TOKEN = 16


def check_prompt(prompt: Prompt, config: ServerConfig, context: int) -> None:
    """Raise for a prompt that cannot fit, whatever the tokenizer makes of it."""
    assert isinstance(prompt, dict)
    tokens = min(config.max_prompt_tokens or context, context)
    ids = prompt.get("prompt_token_ids")
    if ids is not None:
        _check(len(ids), tokens, "tokens")
        return
    messages: list[dict[str, Any]] = prompt.get("messages", [])
    _check(len(messages), tokens, "messages")
    size = len(prompt.get("prompt", "")) + sum(len(message["content"]) for message in messages)
    _check(size, config.max_prompt_characters or CHARACTERS_PER_TOKEN * tokens, "characters")


def _check(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise bad_request(f"the prompt has {count} {what}, but the limit of this server is {limit}")
