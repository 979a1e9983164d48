"""The retention probe: facts are unlike one another, stand where they are said to, and are found only there."""

import json
from collections import Counter
from functools import partial

import pytest

from bench.context_replay import KEEPING, Served
from bench.context_sessions import Session, forty_turns, real
from bench.probes import KINDS, Kept, fact, fates, planted
from gateway.shown import Shown
from policies.conversation import Conversation


def served(session: Session, sent: Session | None = None, shown: Shown | None = None) -> Served:
    original = Conversation(session.messages)
    view = Conversation(sent.messages) if sent else original
    return Served(original, view, False, 0, 0, 0, shown or Shown())


@pytest.mark.parametrize("kind", KINDS)
def test_no_fact_is_part_of_another(kind: str) -> None:
    facts = [fact(one, number, 0) for one in KINDS for number in range(90)]
    texts = [found.text for found in facts]
    assert len(set(texts)) == len(texts)
    lines = "\n".join(found.line for found in facts)
    assert all(lines.count(found.text) == 1 for found in facts if found.kind == kind)


@pytest.mark.parametrize("session", [forty_turns(100), *real()], ids=lambda session: session.name)
def test_every_session_gets_facts_that_stand_in_it_once(session: Session) -> None:
    probed, facts = planted(session)
    whole = json.dumps(session.wire, ensure_ascii=False)
    texts = [json.dumps(message, ensure_ascii=False) for message in probed.wire]
    assert len(facts) >= 4
    for found in facts:
        assert found.text not in whole
        assert [at for at, text in enumerate(texts) if found.text in text] == [found.at]


def test_outputs_get_one_fact_each_and_json_stays_json() -> None:
    listed, keyed, plain = json.dumps([1, 2, 3]), json.dumps({"a": 1}), "one\ntwo\nthree"
    outputs = [listed, keyed, plain, plain, plain]
    wire = [{"role": "user", "content": "Go."}]
    for at, output in enumerate(outputs):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        wire.append({"role": "assistant", "content": "", "tool_calls": [call]})  # type: ignore[dict-item]
        wire.append({"role": "tool", "content": output, "tool_call_id": f"c{at}"})
    probed, facts = planted(Session("s", wire))
    assert Counter(found.kind for found in facts) == {"number": 2, "path": 1, "name": 1, "error": 1, "decision": 1}
    assert len(json.loads(probed.wire[2]["content"])) == 4
    assert "note" in json.loads(probed.wire[4]["content"])
    assert len(probed.wire[6]["content"].split("\n")) == 4


def test_places_are_spread_over_the_outputs() -> None:
    probed, facts = planted(forty_turns(400))
    places = []
    for found in facts:
        if found.kind != "decision":
            lines = probed.wire[found.at]["content"].split("\n")
            places.append(lines.index(found.line) / len(lines))
    assert all(10 <= sum(third / 3 <= place < (third + 1) / 3 for place in places) <= 16 for third in range(3))


def test_a_fact_is_asked_for_once_it_was_said_and_found_by_its_characters() -> None:
    probed, facts = planted(forty_turns(100, turns=8))
    without = Session("s", [*probed.wire[:2], *probed.wire[6:]])  # the first two outputs' turn is gone
    early = Session("s", probed.wire[:6])
    assert set(fates(facts, served(probed))) == {(found.kind, "retained") for found in facts}
    assert list(fates(facts, served(early))) == [("number", "retained")]
    lost = [kind for kind, fate in fates(facts, served(probed, without)) if fate == "lost"]
    assert lost == ["number"]


def test_a_fact_is_recoverable_by_what_a_handle_that_is_sent_gives_back_alone() -> None:
    probed, facts = planted(forty_turns(100, turns=2))
    originals = [message.text for message in probed.messages if message.role == "tool"]
    for at, expected in ((0, ["recoverable", "lost"]), (1, ["lost", "recoverable"])):
        shown = Shown({KEEPING.handle_of(originals[at]): partial(str, originals[at])})
        found = fates(facts, served(probed, Session("s", [{"role": "user", "content": "Go."}]), shown))
        assert [fate for _, fate in found] == expected


def test_shares_are_of_what_was_asked() -> None:
    kept = Kept(Counter({("path", "retained"): 1, ("path", "lost"): 3, ("name", "recoverable"): 4}))
    assert kept.share("retained") == 0.125 and kept.share("retained", "path") == 0.25
    assert kept.share("recoverable", "name") == 1.0 and kept.share("lost", "error") == 0.0
