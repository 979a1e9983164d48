"""The emulated engine answers recorded requests as vLLM 0.32 answered them: status, headers, keys, types, frames."""

import pytest

from loadtest.engine import Engine, serve
from tests.conformance.engine.recording import Message, begun, changed, frames_by_choice, request, response, send, shape

FOLDER = "vllm-0.32.0"
HEADERS = ("content-type", "allow", "vary", "server")

SAME_BYTES = [
    "health", "ping", "version", "load", "notfound", "method_not_allowed", "embeddings", "chat_image_part",
    "tokenize_unknown_model", "cache_salt_empty", "priority_str", "err_bad_json", "err_context_too_long",
    "err_context_too_long_stream", "err_empty_body", "err_empty_messages", "err_max_tokens_negative",
    "err_max_tokens_too_big", "err_max_tokens_zero", "err_no_messages", "err_temperature", "err_type",
    "err_unknown_model", "err_unknown_model_stream", "err_wrong_content_type",
]  # fmt: skip

SAME_SHAPE = [
    "chat_nonstream", "chat_nonstream_again_cached", "chat_request_id", "chat_tools_auto", "chat_tool_result_turn",
    "chat_text_parts", "chat_return_token_ids", "chat_truncate_prompt_tokens", "ignore_eos_min_tokens",
    "err_bad_role", "unknown_field_ignored", "priority_5", "cache_salt_A_1", "cache_salt_B_1", "cache_nosalt",
    "completions", "completions_batch2", "completions_echo_max1", "completions_echo_max0", "completions_token_ids",
    "models", "tokenize_prompt", "tokenize_messages", "detokenize",
]  # fmt: skip

SAME_FRAMES = [
    "chat_stream", "chat_stream_usage", "chat_stream_continuous_usage", "chat_n2_stream",
    "chat_return_token_ids_stream", "completions_stream", "completions_echo_max0_stream",
]  # fmt: skip


def assert_same_head(ours: Message, theirs: Message) -> None:
    assert ours.start == theirs.start
    assert {name: ours.headers.get(name) for name in HEADERS} == {name: theirs.headers.get(name) for name in HEADERS}
    assert ("x-request-id" in ours.headers) == ("x-request-id" in theirs.headers)


@pytest.mark.parametrize("name", SAME_BYTES)
async def test_same_bytes(engine: Engine, name: str) -> None:
    ours, theirs = await send(engine.port, request(FOLDER, name)), response(FOLDER, name)
    assert_same_head(ours, theirs)
    assert ours.body == theirs.body


@pytest.mark.parametrize("name", SAME_SHAPE)
async def test_same_shape(engine: Engine, name: str) -> None:
    ours, theirs = await send(engine.port, request(FOLDER, name)), response(FOLDER, name)
    assert_same_head(ours, theirs)
    assert shape(ours.json) == shape(theirs.json)


@pytest.mark.parametrize("name", SAME_FRAMES)
async def test_same_frames(engine: Engine, name: str) -> None:
    ours, theirs = await send(engine.port, changed(request(FOLDER, name), ignore_eos=True)), response(FOLDER, name)
    assert_same_head(ours, theirs)
    assert frames_by_choice(ours.events) == frames_by_choice(theirs.events)
    assert len(ours.events) == len(theirs.events), "one frame a token"


@pytest.mark.parametrize("name", SAME_FRAMES)
async def test_one_frame_is_one_chunk(engine: Engine, name: str) -> None:
    for message in (await send(engine.port, request(FOLDER, name)), response(FOLDER, name)):
        assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in message.chunks)
        assert len(message.chunks) == len(message.events)


async def test_the_client_s_request_id_comes_back(engine: Engine) -> None:
    ours, theirs = await send(engine.port, request(FOLDER, "chat_request_id")), response(FOLDER, "chat_request_id")
    assert ours.headers["x-request-id"] == theirs.headers["x-request-id"]
    assert isinstance(ours.json, dict) and isinstance(theirs.json, dict)
    assert ours.json["id"] == theirs.json["id"]


@pytest.mark.parametrize("name", ["chat_tools_forced_stream", "chat_tools_required_stream"])
async def test_a_tool_call_that_is_cut(engine: Engine, name: str) -> None:
    """The recorded model, with random weights, never closed its arguments; ours is cut within them."""
    ours, theirs = await send(engine.port, changed(request(FOLDER, name), max_tokens=19)), response(FOLDER, name)
    assert_same_head(ours, theirs)
    assert frames_by_choice(ours.events) == frames_by_choice(theirs.events)


async def test_a_whole_tool_call_that_is_cut(engine: Engine) -> None:
    name = "chat_tools_forced"
    ours, theirs = await send(engine.port, changed(request(FOLDER, name), max_tokens=19)), response(FOLDER, name)
    assert shape(ours.json) == shape(theirs.json)


@pytest.mark.parametrize("name", ["noauth", "badauth", "noauth_models", "noauth_health"])
async def test_keys_guard_v1_only(guarded: Engine, name: str) -> None:
    ours, theirs = await send(guarded.port, request(FOLDER, name)), response(FOLDER, name)
    assert_same_head(ours, theirs)
    assert ours.body == theirs.body


async def test_tokenize_needs_no_key(guarded: Engine) -> None:
    ours, theirs = (
        await send(guarded.port, request(FOLDER, "noauth_tokenize")),
        response(FOLDER, "noauth_tokenize"),
    )
    assert shape(ours.json) == shape(theirs.json)


async def test_forced_usage_comes_with_running_usage(guarded: Engine) -> None:
    name = "chat_stream_forced_usage"
    ours, theirs = await send(guarded.port, request(FOLDER, name)), response(FOLDER, name)
    last = theirs.events[-2]
    assert isinstance(last, dict) and last.pop("metrics"), "recorded with per-request metrics, which we do not have"
    expected = frames_by_choice([*theirs.events[:-2], last, "[DONE]"])
    assert frames_by_choice(ours.events) == expected


@pytest.mark.parametrize("name", ["overload_5th_503", "overload_5th_503_stream"])
async def test_overload(guarded: Engine, name: str) -> None:
    """A request that finds as many others as the limit allows is refused."""
    settings = guarded.emulator.settings.model_copy(update={"max_num_queued_reqs": 1, "speed": 0.001})
    async with serve(settings) as full, begun(full.port, changed(request(FOLDER, name), stream=True)):
        ours, theirs = await send(full.port, request(FOLDER, name)), response(FOLDER, name)
    assert_same_head(ours, theirs)
    assert ours.body == theirs.body
    assert b'reason="max_num_queued_reqs"} 1.0' in full.emulator.metrics.scrape()


async def test_salts_share_nothing(engine: Engine) -> None:
    """As recorded: cold, warm with the same salt, cold with another, cold without."""
    for name in ("cache_salt_A_1", "cache_salt_A_2", "cache_salt_B_1", "cache_nosalt"):
        ours, theirs = await send(engine.port, request(FOLDER, name)), response(FOLDER, name)
        assert _cached_any(ours) == _cached_any(theirs), name


def _cached_any(message: Message) -> bool:
    assert isinstance(message.json, dict)
    return bool(message.json["usage"]["prompt_tokens_details"]["cached_tokens"])
