"""What holds for a whole plan: names of prefixes, what is pinned, which call an output answers."""

from policies.edit import ReplaceText
from policies.frame import Frame
from policies.mends import Mends
from tests.unit.policies.conversations import calling, conversation, result, says, system, user


def test_a_prefix_is_named_by_its_messages_in_order() -> None:
    one, two = conversation(user("a"), says("b")), conversation(user("a"), says("c"))
    assert Frame(one).prefix_digest(1) == Frame(two).prefix_digest(1)
    assert Frame(one).prefix_digest(2) != Frame(two).prefix_digest(2)


def test_a_stripped_message_is_named_by_what_is_left_of_it() -> None:
    prompts = [conversation(system(f"{line}\nBe brief."), user()) for line in ("now: 10:00", "now: 11:00")]
    texts = [ReplaceText("strip", 0, talk.messages[0].digest, "Be brief.", 3) for talk in prompts]
    one, two = (Frame(talk, mends=Mends({0: edit})) for talk, edit in zip(prompts, texts, strict=True))
    assert prompts[0].messages[0].digest != prompts[1].messages[0].digest
    assert one.prefix_digest(1) == two.prefix_digest(1) != Frame(prompts[0]).prefix_digest(1)


def test_a_pinned_message_keeps_its_turn() -> None:
    talk = conversation(user(), says(), user(), calling("a"), result("a"), says(), user(), says())
    assert Frame(talk, frozenset({4})).pinned == Frame(talk).pinned | {2, 3, 4, 5}


def test_an_output_knows_its_call() -> None:
    talk = conversation(user(), calling("a", "b"), result(" b "), result("a"), result("c"))
    found = Frame(talk).called(range(5))
    assert {at: (made.caller, made.call.id) for at, made in found.items()} == {2: (1, "b"), 3: (1, "a")}
