"""How much a request may ask for, counted before anything of it is tokenised.

Tokenising a megabyte takes a second and a hundred megabytes, so a text that is too long is refused
by its characters.
"""

from collections.abc import Sequence
from typing import Any

from rho_eos.server.config import ServerConfig
from rho_eos.server.errors import bad_request
from rho_eos.text.infilling import Given
from rho_eos.text.prompts import Prompt

#: More characters than any tokenizer makes of a token in a text that means something.
CHARACTERS_PER_TOKEN = 16


def check_prompt(
    prompt: Prompt | None, beside: Sequence[Given | None], config: ServerConfig, context: int
) -> None:
    """Refuse a prompt that cannot fit, whatever the tokenizer makes of it, together with what is
    given `beside` it: a suffix or a template."""
    assert isinstance(prompt, dict | None)
    prompt = prompt or {}
    tokens = min(config.max_prompt_tokens or context, context)
    given = [each for each in (prompt.get("prompt_token_ids"), *beside) if each is not None]
    messages: list[dict[str, Any]] = prompt.get("messages", [])
    texts = [prompt.get("prompt", ""), *(message["content"] for message in messages)]
    texts += [each for each in given if isinstance(each, str)]
    characters = config.max_prompt_characters or CHARACTERS_PER_TOKEN * tokens
    what = "text that is given" if any(beside) else "prompt"
    for count, limit, unit in (
        (sum(len(each) for each in given if not isinstance(each, str)), tokens, "tokens"),
        (len(messages), tokens, "messages"),
        (sum(map(len, texts)), characters, "characters"),
    ):
        if count > limit:
            limits = f"the {what} has {count} {unit}, but the limit of this server is {limit}"
            raise bad_request(limits)
