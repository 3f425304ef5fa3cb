"""llama-index-llms-openai-like with what it sends by itself."""

import pytest
from conftest import PROBLEM, is_right
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike


@pytest.fixture(params=[True, False], ids=["chat", "completions"])
def model(request: pytest.FixtureRequest, url: str) -> OpenAILike:
    return OpenAILike(
        model="tiny", api_base=url, api_key="unused", is_chat_model=request.param, max_retries=0
    )


def test_complete_chat_and_their_streams(model: OpenAILike) -> None:
    whole = model.complete(PROBLEM)
    assert isinstance(whole.text, str)
    if model.is_chat_model:
        assert is_right(whole.text)
    *_, last = model.stream_complete(PROBLEM)
    assert isinstance(last.text, str)
    answer = model.chat([ChatMessage(role="user", content=PROBLEM)])
    again = [ChatMessage(role="user", content=PROBLEM), answer.message]
    *_, last = model.stream_chat([*again, ChatMessage(role="user", content=PROBLEM)])
    assert isinstance(last.message.content, str)
