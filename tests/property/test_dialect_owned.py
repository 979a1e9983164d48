"""The closed table of owned fields: whatever a client sends, only these change, and none of its own gets through."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from config.pools import Features
from gateway.dialects.base import FORBIDDEN, LIMIT_FIELDS, OWNED
from gateway.dialects.fields import edited, top_level
from gateway.dialects.openai_chat import OpenAIChat
from gateway.owned import EVERY_FRAME, owned_fields
from tests.unit.gateway.samples import caller

CALLER = caller(("tiers/standard/priority", -3))
SALT = json.loads(CALLER.cache_salt)
LIMIT = 4096
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3)
)
NUMBERS = st.none() | st.integers(min_value=1, max_value=10_000)
FORBIDDEN_FIELDS = st.dictionaries(st.sampled_from(FORBIDDEN), ANYTHING, max_size=6)
LIMITS = st.dictionaries(st.sampled_from(LIMIT_FIELDS), NUMBERS, max_size=2)
OPTIONS = st.none() | st.dictionaries(st.sampled_from(["include_usage", "continuous_usage_stats"]), st.booleans())
OTHERS = st.dictionaries(
    st.sampled_from(["temperature", "stop", "seed", "tools", "logit_bias", "x"]), st.floats(0, 2) | st.text(max_size=5)
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A chat request with its fields in any order."""
    fields: dict[str, Any] = {"model": draw(st.sampled_from(["demo", "gpt-4o-mini"]))}
    fields["messages"] = [{"role": "user", "content": draw(st.text(max_size=10))}]
    fields |= draw(FORBIDDEN_FIELDS) | draw(LIMITS) | draw(OTHERS)
    if draw(st.booleans()):
        fields["stream"] = draw(st.booleans())
    if draw(st.booleans()):
        fields["stream_options"] = draw(OPTIONS)
    order = draw(st.permutations(list(fields)))
    return {name: fields[name] for name in order}


FEATURES = st.builds(
    Features,
    priority=st.booleans(),
    prompt_tokens_details=st.booleans(),
    cache_salt=st.booleans(),
    usage_in_stream=st.booleans(),
)


@given(fields=bodies(), features=FEATURES, spaces=st.sampled_from([None, 2]), escaped=st.booleans())
def test_only_owned_fields_change_and_they_say_what_we_say(
    fields: dict[str, Any], features: Features, spaces: int | None, escaped: bool
) -> None:
    body = json.dumps(fields, indent=spaces, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    call = OpenAIChat().parse(body)
    sent = edited(body, owned_fields(call, CALLER, "demo", features), call.present)
    found = json.loads(sent)
    spans_before, spans_after = top_level(body), top_level(sent)  # refuses a field that stands twice

    for name in set(fields) - set(OWNED):
        before, after = spans_before[name], spans_after[name]
        assert sent[after.start : after.stop] == body[before.start : before.stop]
    assert set(found) - set(OWNED) == set(fields) - set(OWNED)
    ours = {name: found[name] for name in FORBIDDEN if name in found}
    assert ours == ({"cache_salt": SALT} if features.cache_salt else {}) | (
        {"priority": -3} if features.priority else {}
    )
    assert found["model"] == "demo"

    limits = [found[name] for name in LIMIT_FIELDS if found.get(name) is not None]
    assert limits and max(limits) <= LIMIT
    for name in LIMIT_FIELDS:
        if (asked := fields.get(name)) is not None:
            assert found[name] == min(asked, LIMIT)

    options = found.get("stream_options") or {}
    given_options = fields.get("stream_options") or {}
    if not given_options.get("include_usage"):  # then this is of no effect, and what we ask for must not give it one
        given_options = {name: value for name, value in given_options.items() if name != EVERY_FRAME}
    if fields.get("stream") and features.usage_in_stream:
        assert options == given_options | {"include_usage": True}
    else:
        assert found.get("stream_options") == fields.get("stream_options")


@given(fields=bodies())
def test_doing_it_twice_changes_nothing_more(fields: dict[str, Any]) -> None:
    features = Features(priority=True, prompt_tokens_details=True, cache_salt=True, usage_in_stream=True)
    body = json.dumps(fields).encode()
    for _ in range(2):
        call = OpenAIChat().parse(body)
        before, body = body, edited(body, owned_fields(call, CALLER, "demo", features), call.present)
    assert json.loads(body) == json.loads(before)
