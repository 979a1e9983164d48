"""Names in the store: one hash tag a tree, no two limits in one bucket, and windows that change by themselves."""

from hashlib import blake2b
from struct import iter_unpack, unpack

import msgspec
from redis.crc import key_slot

from budgets.limit import Limit
from budgets.scope import Owner, Scope

RATE = Limit(name="rate", dimension="requests", amount=6, per_seconds=60)
DAILY = Limit(name="daily", dimension="total_tokens", amount=100, every="day", hardness="strict", mode="shadow")
AT_ONCE = Limit(name="at-once", dimension="concurrent_calls", amount=3)


def test_every_kind_is_told_to_the_scripts_in_its_own_words() -> None:
    standing = Scope("acme", (RATE, DAILY, AT_ONCE)).standing(86_400 * 3 + 5)
    names = msgspec.msgpack.encode(["rate:requests", "daily:total_tokens:day:1970-01-04"])
    head = blake2b(names, digest_size=8).digest() + b"\x02\x00"
    told = standing.packed.removeprefix(msgspec.msgpack.encode([" "]) + b"\x93")  # a list of three
    told = told.removeprefix(text(head) + text(names) + b"\x03")
    numbers = told[5:]
    assert told == text(numbers)
    assert unpack("<dd", numbers[:16]) == (259_200_000_000, 345_600_000_000)
    assert [*iter_unpack("<BBHddd", numbers[16:100])] == [
        (0, 2, 1, 6_000_000, 6_000_000, 60_000_000),
        (1, 0, 4, 100_000_000, 259_200_000_000, 345_600_000_000),
        (2, 1, 0, 3, 0, 0),
    ], "a strict limit looks into the second list, of what a call can use at most"
    assert unpack("<ddd", numbers[100:]) == (-1, 1_000_000, 0)
    assert standing.keys == (
        "kvgate:2:{acme}:buckets",
        "kvgate:2:{acme}:leases",
        "kvgate:2:{acme}:held",
        "kvgate:2:{acme}:stale",
        "kvgate:1:{acme}:buckets",
        f"kvgate:1:{{acme}}:terms:{blake2b(standing.packed, digest_size=16).hexdigest()}",
        "kvgate:1:{acme}:slots:at-once:concurrent_calls",
    )


def text(value: bytes) -> bytes:
    return b"\xdb" + len(value).to_bytes(4, "big") + value


def test_limits_of_an_owner_and_of_a_model_stand_together() -> None:
    of_model = Limit(name="of-model", dimension="requests", model="demo", amount=6, per_seconds=60)
    key = Owner("key", "main", "key/acme/main/")
    scope = Scope("acme", (RATE, of_model, DAILY)).joined_by((AT_ONCE, RATE), key)
    standing = scope.standing(0)
    assert [terms.limit.label for terms in standing.terms] == ["rate", "daily", "of-model", "at-once", "rate"]
    assert standing.packed.startswith(msgspec.msgpack.encode([" ", " demo", "key/acme/main/ "]))


def test_all_levels_share_a_slot_and_no_two_a_bucket() -> None:
    scope = Scope("acme", (), organisation="group")
    owners = (
        Owner("organisation", "group", "organisation/group/"),
        scope.owner,
        Owner("key", "main", "key/acme/main/"),
        Owner("session", "s-1", "session/acme/s-1/"),
    )
    for owner in owners:
        scope = scope.joined_by((RATE, AT_ONCE), owner)
    standing = scope.standing(0)
    assert {key_slot(key.encode()) for key in standing.keys} == {key_slot(b"group")}
    assert len({terms.bucket for terms in standing.terms}) == 8
    assert len({*standing.keys}) == 6 + 4
    labels = [terms.owner.label for terms in standing.terms[::2]]
    assert labels == ["organisation:group", "tenant:acme", "key:main", "session:s-1"]


def test_two_tenants_of_an_organisation_do_not_share() -> None:
    buckets = [Scope(name, (RATE,), organisation="group").standing(0).terms[0].bucket for name in ("a", "b")]
    assert buckets == ["tenant/a/rate:requests", "tenant/b/rate:requests"]


def test_terms_are_made_anew_only_when_a_window_has_ended() -> None:
    scope = Scope("acme", (RATE, DAILY))
    first = scope.standing(100)
    assert scope.standing(86_399.9) is first
    assert scope.standing(86_400).terms[1].bucket == "daily:total_tokens:day:1970-01-02"
    assert scope.standing(100).packed == first.packed, "a clock that is set back is followed"
    rates = Scope("acme", (RATE,))
    assert rates.standing(0) is rates.standing(1e12)


def test_terms_are_told_once_and_again_before_the_store_forgets_them() -> None:
    standing = Scope("acme", (RATE,)).standing(0)
    assert [standing.told(now) for now in (1_000, 1_299, 1_300, 1_301, 900)] == [
        standing.packed,
        b"",
        standing.packed,
        b"",
        standing.packed,
    ]
    assert standing.known.whole == standing.packed


def test_other_terms_have_another_key() -> None:
    more = RATE.model_copy(update={"amount": 7})
    keys = {Scope("acme", (limit,)).standing(0).keys[5] for limit in (RATE, RATE.model_copy(), more)}
    assert len(keys) == 2


def test_a_changed_amount_keeps_the_bucket() -> None:
    more = DAILY.model_copy(update={"amount": 500, "time_zone": "Europe/Paris"})
    before, after = (Scope("acme", (limit,)).standing(50_000).terms[0].bucket for limit in (DAILY, more))
    assert before == after
