"""Keys of the store are found as those of the file are, and what changes there holds at the next request."""

import hashlib

import msgspec
import pytest

from gateway import tenants as tenants_module
from gateway.errors import NotAuthenticated, StoreDown
from gateway.explain_limits import snapshot
from gateway.roster import Roster
from gateway.tenant_book import News
from gateway.tenant_record import Boost, StoredTenant
from gateway.tenants import Caller, Tenants, cache_salt
from tests.unit.gateway.records import NOW, SECOND_KEY, STORE_KEY, digest, roster, stored, with_key
from tests.unit.gateway.samples import BEARER, SECRET, config

CALLS = {"dimension": "requests", "amount": 3, "per": 60}
LIMIT = "total_tokens_per_60s"


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The wall clock, which the tests move."""
    now = [NOW]
    monkeypatch.setattr(tenants_module, "wall", lambda: now[0])
    return now


def bearer(key: str = STORE_KEY) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + key.encode()}


def refused(tenants: Tenants, key: str = STORE_KEY) -> bool:
    try:
        tenants.identify(bearer(key))
    except NotAuthenticated as fault:
        assert key not in fault.message
        return True
    return False


def amounts(caller: Caller) -> list[int]:
    return [limit.amount for limit in (*caller.may.budgets, *caller.budgets)]


def changed(tenants: Tenants, known: Roster, record: StoredTenant | None, name: str = "beta") -> None:
    tenants.renew(tuple(known.take(News("2-1", "", False, {name: record}))))


def test_a_key_of_the_store_is_its_tenant_as_the_file_would_have_it() -> None:
    record = with_key(stored(max_tokens={"default": 9, "limit": 99}), "two", SECOND_KEY, budget=CALLS)
    tenants = Tenants(config(), SECRET, roster(record))
    caller = tenants.identify(bearer())
    assert (caller.tenant, caller.key, caller.may.tier, caller.may.max_tokens.limit) == ("beta", "main", "standard", 99)
    assert caller.cache_salt == f'"{cache_salt(SECRET, "beta")}"'.encode()
    assert amounts(tenants.identify(bearer(SECOND_KEY))) == [200_000, 3]


def test_a_caller_is_worked_out_once() -> None:
    tenants = Tenants(config(), SECRET, roster(stored()))
    assert tenants.identify(bearer()) is tenants.identify(bearer())


def test_the_file_s_keys_are_found_beside_them() -> None:
    assert Tenants(config(), SECRET, roster(stored())).identify(BEARER).tenant == "acme"


def test_another_secret_finds_no_key() -> None:
    assert refused(Tenants(config(), b"x" * 32, roster(stored())))


@pytest.mark.parametrize("key", [STORE_KEY[:-1], STORE_KEY + "k", digest(), SECOND_KEY])
def test_other_keys_are_refused(key: str) -> None:
    assert refused(Tenants(config(), SECRET, roster(stored())), key)


def test_a_key_expires_at_its_moment(time: list[float]) -> None:
    record = with_key(stored(), "two", SECOND_KEY, until=NOW + 60)
    tenants = Tenants(config(), SECRET, roster(record))
    assert not refused(tenants, SECOND_KEY)
    time[0] = NOW + 59.9
    assert not refused(tenants, SECOND_KEY)
    time[0] = NOW + 60
    assert refused(tenants, SECOND_KEY) and refused(tenants, SECOND_KEY)
    assert not refused(tenants)


def test_a_boost_holds_until_its_end(time: list[float]) -> None:
    record = msgspec.structs.replace(stored(), boosts=(Boost(LIMIT, 400_000, NOW + 60),))
    tenants = Tenants(config(), SECRET, roster(record))
    assert amounts(tenants.identify(bearer())) == [400_000]
    time[0] = NOW + 60
    assert amounts(tenants.identify(bearer())) == [200_000]


def test_a_boost_of_a_key_is_that_key_s_only() -> None:
    record = with_key(stored(), "two", SECOND_KEY, budget=CALLS | {"name": "calls"})
    record = msgspec.structs.replace(record, boosts=(Boost("calls", 9, NOW + 60, key="two"),))
    tenants = Tenants(config(), SECRET, roster(record))
    assert amounts(tenants.identify(bearer(SECOND_KEY))) == [200_000, 9]
    assert amounts(tenants.identify(bearer())) == [200_000]


def test_what_is_switched_off_is_refused_from_the_next_look_on() -> None:
    known = roster(stored())
    tenants = Tenants(config(), SECRET, known)
    assert not refused(tenants)
    for change in ({"disabled": True}, {"disabled_keys": ("main",)}, {"keys": ()}):
        changed(tenants, known, msgspec.structs.replace(stored(), **change))
        assert refused(tenants)
        changed(tenants, known, stored())
        assert not refused(tenants)
    changed(tenants, known, None)
    assert refused(tenants)


def test_a_tenant_of_the_file_gets_keys_boosts_and_switches() -> None:
    record = with_key(StoredTenant("acme", boosts=(Boost(LIMIT, 7, NOW + 60),)), "two")
    known = roster(record)
    tenants = Tenants(config(), SECRET, known)
    assert amounts(tenants.identify(BEARER)) == amounts(tenants.identify(bearer())) == [7]
    assert tenants.identify(bearer()).tenant == "acme"
    changed(tenants, known, msgspec.structs.replace(record, disabled_keys=("laptop",)), "acme")
    with pytest.raises(NotAuthenticated):
        tenants.identify(BEARER)
    assert not refused(tenants)
    changed(tenants, known, None, "acme")
    assert amounts(tenants.identify(BEARER)) == [200_000]
    assert refused(tenants)


def test_of_two_tenants_with_one_name_the_file_s_counts_and_the_store_s_keys_do_not() -> None:
    tenants = Tenants(config(), SECRET, roster(stored("acme")))
    assert tenants.identify(BEARER).tenant == "acme"
    assert refused(tenants)


def test_what_adds_to_a_tenant_that_the_file_has_no_more_does_not_count() -> None:
    assert refused(Tenants(config(), SECRET, roster(with_key(StoredTenant("gone")))))


def test_a_tenant_that_does_not_fit_the_file_is_refused_and_the_others_are_not() -> None:
    wrong = stored("gamma", tier="gold")
    right = with_key(StoredTenant("acme"), "two", SECOND_KEY)
    tenants = Tenants(config(), SECRET, roster(wrong, right))
    assert refused(tenants)
    assert not refused(tenants, SECOND_KEY)


def test_a_file_tenant_s_own_keys_work_although_the_store_adds_what_does_not_fit() -> None:
    strange = {"dimension": "total_tokens", "amount": 5, "per": 60, "model": "gone"}
    tenants = Tenants(config(), SECRET, roster(with_key(StoredTenant("acme"), "two", budget=strange)))
    assert tenants.identify(BEARER).tenant == "acme"
    assert refused(tenants)


def test_while_the_store_is_away_the_last_known_state_holds_for_a_time() -> None:
    clock = [0.0]
    known = Roster(trusted_seconds=100, clock=lambda: clock[0])
    known.take(News("1-1", "", True, {"beta": stored()}))
    tenants = Tenants(config(), SECRET, known)
    known.lost()
    clock[0] = 100.0
    assert not refused(tenants)
    with pytest.raises(StoreDown):  # it may have been made meanwhile
        tenants.identify(bearer(SECOND_KEY))
    assert refused(tenants, "sk-some-other-key")
    clock[0] = 101.0
    with pytest.raises(StoreDown):
        tenants.identify(bearer())
    assert tenants.identify(BEARER).tenant == "acme"


def test_before_the_store_has_told_anything_its_keys_cannot_be_checked() -> None:
    tenants = Tenants(config(), SECRET, Roster())
    with pytest.raises(StoreDown):
        tenants.identify(bearer())
    assert tenants.identify(BEARER).tenant == "acme"


def test_a_key_of_our_making_may_stand_in_the_file(time: list[float]) -> None:
    """What somebody makes with kvgate and writes down as a digest is a key of the file like any other."""
    in_file = config(("tenants/acme/keys/0/sha256", hashlib.sha256(SECOND_KEY.encode()).hexdigest()))
    assert Tenants(in_file, SECRET, roster(stored())).identify(bearer(SECOND_KEY)).tenant == "acme"


def test_a_change_of_one_tenant_leaves_the_others_and_what_was_built_for_them() -> None:
    known = roster(stored(), with_key(StoredTenant("gamma", {"tier": "standard"}), key=SECOND_KEY))
    tenants = Tenants(config(), SECRET, known)
    running = snapshot(config(), tenants)
    callers = {key: tenants.identify(bearer(key)) for key in (STORE_KEY, SECOND_KEY)}
    services = {key: running.service(caller, "demo") for key, caller in callers.items()}
    boosted = msgspec.structs.replace(stored(), boosts=(Boost(LIMIT, 7, NOW + 60),))
    running.renew(tuple(known.take(News("2-1", "", False, {"beta": boosted}))))
    assert tenants.identify(bearer(SECOND_KEY)) is callers[SECOND_KEY]
    assert running.service(callers[SECOND_KEY], "demo") is services[SECOND_KEY]
    other = running.service(tenants.identify(bearer()), "demo")
    assert other is not services[STORE_KEY]
    assert [limit.amount for limit in other.scope.limits] == [7]
