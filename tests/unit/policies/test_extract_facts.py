"""Facts found without a model: to the letter, the latest first, never more than there is room for."""

import time

from policies.conversation import Message
from policies.extract_facts import LINE_CHARACTERS, extract
from tests.unit.policies.conversations import calling, result, says, user

LOG = "".join(f"2026-11-30 10:00:{number % 60:02} worker {number} fine\n" for number in range(2000))


def facts(*messages: Message, room: int = 4000) -> str:
    return extract(messages).written(room)


def test_what_was_asked_decided_measured_and_named_is_kept_to_the_letter() -> None:
    text = facts(
        user("Move the service to port 8443.\nThe rest can wait."),
        calling("a", arguments='{"path": "deploy/values.yaml"}'),
        result("a", "all fine\nreplicas: 3\nERROR: quota exceeded for eu-west-1\nbye"),
        says("We decided to keep TLS 1.3 only, because of the audit.\nThe commit is 9f2c1ab."),
    )
    assert text.splitlines() == [
        "INTENT",
        "Move the service to port 8443.",
        "DECISIONS",
        "We decided to keep TLS 1.3 only, because of the audit.",
        "FACTS",
        "all fine",
        "replicas: 3",
        "bye",
        "ERROR: quota exceeded for eu-west-1",
        "The commit is 9f2c1ab.",
        "ARTEFACTS",
        "look deploy/values.yaml",
    ]


def test_lines_of_a_log_that_differ_in_numbers_only_are_one() -> None:
    assert facts(result("a", LOG)).count("worker") <= 1


def test_the_latest_stay_where_there_is_no_room_for_all() -> None:
    talk = [says(f"The value of run {number} is {number * 7}.") for number in range(100)]
    text = facts(*talk, room=600)
    assert len(text) <= 600
    assert "run 99 is 693" in text and "run 3 is" not in text
    assert text.index("run 98") < text.index("run 99")


def test_nothing_to_say_is_nothing() -> None:
    assert facts(says("Fine."), result("a", "ok")) == ""
    assert facts(says("It is 5 degrees."), room=5) == ""


def test_instructions_and_our_own_notes_are_no_facts() -> None:
    assert (
        facts(Message("system", b"s", 1, "Always use port 99."), result("a", "[kvgate: about 70 tokens left out]"))
        == ""
    )


def test_long_lines_are_cut_and_lone_surrogates_never_leave() -> None:
    text = facts(says("We will use \ud83d 5 " + "x" * 5000))
    text.encode()
    assert max(map(len, text.splitlines())) <= LINE_CHARACTERS


def test_the_work_is_linear_in_the_text() -> None:
    """Texts that send careless patterns back and forth for ever; the time is generous by two orders."""
    for text in ("a" * 200_000, "/" * 200_000, "1" * 200_000, "a/b" * 60_000, "a=" * 100_000, "- " * 100_000):
        began = time.perf_counter()
        facts(says(text), result("a", text), user(text))
        assert time.perf_counter() - began < 10


def test_of_long_texts_the_sentences_count_and_of_long_lines_what_stands_around_the_value() -> None:
    text = "Well. " * 60 + "We chose port 9090. " + "And so on. " * 60
    assert facts(says(text)) == "DECISIONS\nWe chose port 9090."
    line = "word " * 200 + "build-77.log " + "word " * 200
    assert "build-77.log" in facts(says(line)) and len(facts(says(line))) < 300


def test_an_odd_line_of_a_log_is_a_fact_and_an_error_comes_first() -> None:
    lines = LOG.splitlines()
    lines[10:10] = ["reviewed by Tadeo Varga"]
    lines[20:20] = ["ERROR: connection refused by shard-3"]
    found = facts(result("a", "\n".join(lines))).splitlines()
    assert {"reviewed by Tadeo Varga", "ERROR: connection refused by shard-3"} <= set(found)
    assert "shard-3" in facts(result("a", "\n".join(lines)), room=70) and "Tadeo" not in facts(
        result("a", "\n".join(lines)), room=70
    )


def test_a_long_text_of_a_user_is_an_output() -> None:
    """Some agents send what their tools gave as the user's."""
    text = "<output>\n" + "\n".join(LOG.splitlines()[:60]) + "\nreplicas = 3 for eu-west-1\n</output>"
    assert "replicas = 3 for eu-west-1" in facts(user(text))
    assert facts(user(text)).count("worker") <= 1
