"""What operators do, as functions from one record to the next."""

import json
from collections.abc import Callable

import pytest

from gateway import tenant_changes as changes
from gateway.tenant_changes import Change, ChangeRefused
from gateway.tenant_record import Boost, StoredTenant, decoded, encoded
from tests.unit.gateway.records import NOW, SECOND_KEY, STORE_KEY, digest, stored, with_key

BOOST = Boost("tokens", 5, NOW + 60)


def after(change: Change) -> StoredTenant:
    assert change.after is not None
    return change.after


def test_a_record_is_the_same_after_it_was_written_and_read() -> None:
    record = after(
        changes.boosted(with_key(stored(), "two", SECOND_KEY, NOW + 9, {"dimension": "requests"}), BOOST, "r", NOW)
    )
    assert decoded(encoded(record)) == record


def test_settings_are_merged_and_none_takes_one_away() -> None:
    record = after(changes.altered(stored(priority=3), {"models": ["demo"], "priority": None}))
    assert record.settings == {"tier": "standard", "models": ["demo"]}
    assert record.keys == stored().keys


def test_a_rotated_key_holds_for_the_overlap_and_a_second_rotation_does_not_lengthen_it() -> None:
    once = after(changes.key_rotated(stored(), "main", digest(SECOND_KEY), 60, NOW))
    assert [each.until for each in once.keys[0].secrets] == [None, NOW + 60]
    twice = after(changes.key_rotated(once, "main", digest("third"), 600, NOW + 30))
    assert [each.until for each in twice.keys[0].secrets] == [None, NOW + 630, NOW + 60]


def test_without_overlap_the_old_key_is_gone_at_once() -> None:
    (secret,) = after(changes.key_rotated(stored(), "main", digest(SECOND_KEY), 0, NOW)).keys[0].secrets
    assert secret.digest == digest(SECOND_KEY)


def test_a_key_is_switched_off_and_on_by_name() -> None:
    off = after(changes.key_switched(stored(), "main", False))
    assert off.disabled_keys == ("main",)
    assert after(changes.key_switched(off, "main", True)) == stored()
    assert after(changes.key_switched(StoredTenant("acme"), "laptop", False, {"laptop"})).disabled_keys == ("laptop",)


def test_a_deleted_key_takes_its_boosts_along() -> None:
    record = after(changes.boosted(stored(), Boost("calls", 5, NOW + 60, key="main"), "why", NOW))
    assert after(changes.key_deleted(record, "main")).says_nothing is False
    assert after(changes.key_deleted(record, "main")).boosts == ()


def test_a_deleted_key_leaves_the_file_s_key_of_its_name_switched_off() -> None:
    off = after(changes.key_switched(stored(), "main", False))
    assert after(changes.key_deleted(off, "main", {"main"})).disabled_keys == ("main",)
    assert after(changes.key_deleted(off, "main")).disabled_keys == ()


def test_a_boost_replaces_the_one_before_and_ends_when_told() -> None:
    record = after(changes.boosted(stored(), BOOST, "why", NOW))
    again = after(changes.boosted(record, Boost("tokens", 9, NOW + 90), "why", NOW))
    assert [boost.amount for boost in again.boosts] == [9]
    assert after(changes.boost_ended(again, "tokens", None)).boosts == ()


def test_what_has_had_its_time_is_left_out() -> None:
    rotated = after(changes.key_rotated(stored(), "main", digest(SECOND_KEY), 60, NOW))
    record = after(changes.boosted(rotated, BOOST, "why", NOW))
    assert changes.tidied(record, NOW + 59) == record
    tidy = changes.tidied(record, NOW + 61)
    assert tidy.boosts == () and [each.digest for each in tidy.keys[0].secrets] == [digest(SECOND_KEY)]


REFUSED: dict[str, Callable[[], Change]] = {
    "already": lambda: changes.created(stored(), "beta", {"tier": "standard"}, NOW),
    "neither a name nor keys": lambda: changes.created(None, "beta", {"tier": "standard", "keys": []}, NOW),
    "looks like a key": lambda: changes.created(None, "beta", {"tier": STORE_KEY}, NOW),
    "a key is no name": lambda: changes.created(None, STORE_KEY, {}, NOW),
    "1 to 64 letters": lambda: changes.created(None, "a b", {}, NOW),
    "stand in the file": lambda: changes.altered(StoredTenant("acme"), {}),
    "rotate it": lambda: changes.key_created(stored(), "main", digest(), None, (), NOW),
    "choose another name": lambda: changes.key_created(stored(), "laptop", digest(), None, (), NOW, {"laptop"}),
    "which is past": lambda: changes.key_created(stored(), "two", digest(), NOW, (), NOW),
    "has expired": lambda: changes.key_rotated(after(changes.key_expires(stored(), "main", NOW)), "main", "", 0, NOW),
    "below zero": lambda: changes.key_rotated(stored(), "main", "", -1, NOW),
    "there: main": lambda: changes.key_deleted(stored(), "nothing"),
    "would end": lambda: changes.boosted(stored(), BOOST, "why", NOW + 60),
    "no boost of 'tokens'": lambda: changes.boost_ended(stored(), "tokens", None),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_done_says_why_and_shows_no_key(said: str) -> None:
    with pytest.raises(ChangeRefused, match=said) as refused:
        REFUSED[said]()
    assert STORE_KEY not in str(refused.value)


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, f"they use {STORE_KEY}"])
def test_a_reason_is_short_and_holds_no_key(reason: str) -> None:
    with pytest.raises(ChangeRefused, match="reason"):
        changes.reasoned(reason)


def test_no_note_holds_a_digest() -> None:
    made = [
        changes.key_created(stored(), "two", digest(SECOND_KEY), NOW + 5, (), NOW),
        changes.key_rotated(stored(), "main", digest(SECOND_KEY), 60, NOW),
        changes.deleted(stored()),
    ]
    assert digest(SECOND_KEY) not in json.dumps([dict(change.detail) for change in made])
    assert digest() not in json.dumps([dict(change.detail) for change in made])
