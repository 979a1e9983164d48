"""Public reports about contexts that the gateway, not a policy, has to get right. Named for what they guard.

Those of pairing, limits and summaries are in `tests/unit/policies/test_cases.py`, those of concurrency and identity end
to end in `tests/integration/test_session_cases.py` and `test_gateway_edits.py`.
"""

import json

import pytest

from config.routing import Routing
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_summary import answer_of, asked_apart, asked_behind
from gateway.digests import of_messages
from gateway.identity import NO_HINTS, SessionHints, identify
from gateway.lineage import session_id
from policies.conversation import Conversation
from policies.frame import Frame
from policies.summary import Wanted
from tests.unit.gateway.samples import call as chat
from tests.unit.gateway.test_service import service


def body(*messages: object, **fields: object) -> bytes:
    return json.dumps({"model": "demo", "messages": messages} | fields).encode()


TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Begin."},
    *[{"role": role, "content": f"{role} {n}"} for n in range(4) for role in ("assistant", "user")],
]


def wanted() -> Wanted:
    call = chat(body(*TALK))
    cover = Frame(Conversation(OpenAIChat().messages(call, of_messages(call.messages)))).covers[-1]
    return Wanted(cover, b"k" * 16, urgent=False, make=True, replaced_tokens=500)


def test_c38_a_summary_is_asked_for_without_the_state_of_the_chain() -> None:
    """agno PR 9480: the id of the previous response went along, and the summary was taken for a turn of the chat."""
    chained = {"previous_response_id": "resp_1", "conversation": "c", "store": True, "stream": True, "stop": ["x"]}
    call = chat(body(*TALK, tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="required", **chained))
    behind = json.loads(asked_behind(call, wanted(), 100))
    assert behind.keys().isdisjoint(chained) and behind["tool_choice"] == "none"
    apart = json.loads(asked_apart("demo", OpenAIChat().messages(call, of_messages(call.messages)), 100, 5_000))
    assert apart.keys() == {"model", "messages", "max_tokens", "temperature"}


@pytest.mark.parametrize("finish", ["length", None])
def test_c34_an_answer_that_was_cut_off_says_so(finish: str | None) -> None:
    """LibreChat PR 15913: what had been streamed of a summary until it was aborted was kept as the summary."""
    choice = {"message": {"content": "INTENT\nHalf of"}, "finish_reason": finish}
    answer = answer_of(json.dumps({"choices": [choice]}).encode())
    assert answer is not None and answer.finish != "stop"
    assert answer_of(b'{"choices": [{"message": {"content": "Half') is None


def test_c46_a_long_reply_has_ten_minutes_before_its_first_byte() -> None:
    """claude-sdlc-harness 705: a gateway cut compaction calls after 120 seconds, 47 times."""
    assert Routing().first_token_timeout_seconds >= 600


def test_c47_the_window_is_what_the_engine_says_and_no_table() -> None:
    """claude-code 94481: a window was assumed by the model's name, and contexts were compacted at 12 %."""
    at = service(("models/demo/aliases", ["gpt-4o"]))
    assert at.context_limit_tokens is None
    at.pools[0].pool.learn(at.pools[0].pool.replicas[0].name, load=None, max_model_len=8_192)
    assert at.context_limit_tokens == 8_192


def test_c52_a_reminder_among_the_messages_is_the_same_session() -> None:
    """headroom PR 2193: the id was made of every system message, and rotated when a reminder came."""
    reminded = [*TALK[:5], {"role": "system", "content": "Mind the time."}, *TALK[5:]]
    ids = set()
    for messages in (TALK, reminded):
        call = chat(body(*messages))
        ids.add(session_id(call, {}, ("acme", "demo"), of_messages(call.messages)))
    assert len(ids) == 1


def test_c53_sub_agents_of_one_session_are_apart() -> None:
    """claude-code-proxy 95: two sub-agents sent one session id."""
    headers = {b"x-claude-code-session-id": b"abcdefgh"}
    ids = {
        identify(headers | agent, NO_HINTS, "acme", "demo", b"o").id
        for agent in ({}, {b"x-claude-code-agent-id": b"one"}, {b"x-claude-code-agent-id": b"two"})
    }
    assert len(ids) == 3


def test_c55_a_chain_of_responses_names_its_session() -> None:
    """vllm 43244: calls of a chain were lost; here the id names a session whose messages are checked as any."""
    assert identify({}, SessionHints(previous_response_id="resp_1"), "acme", "demo", b"o").id == "resp_1"
