"""Sealed text opens in its own place with its own key, and in no other way."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gateway.vault import PLAIN, KeysError, Vault, VaultError, vault_of

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
PLACE = "kvgate:1:{acme}:s:chat e"
TEXT = "a reply with Zürich and 🙂".encode()


def written(*keys: tuple[str, bytes]) -> SecretStr:
    return SecretStr(",".join(f"{id}:{base64.b64encode(key).decode()}" for id, key in keys))


@given(text=st.binary(max_size=3_000), place=st.text(max_size=80))
def test_what_is_sealed_opens_to_the_same_bytes(text: bytes, place: str) -> None:
    place = place.encode("utf-8", "replace").decode()
    for vault in (Vault(), Vault({"k": NEW})):
        assert vault.open(vault.seal(text, place), place) == text


def test_a_seal_hides_the_text_and_never_repeats() -> None:
    vault = Vault({"k": NEW})
    first, second = vault.seal(TEXT, PLACE), vault.seal(TEXT, PLACE)
    assert first != second
    assert TEXT not in first and TEXT[:8] not in first
    assert vault.seals and not Vault().seals


@pytest.mark.parametrize("place", ["kvgate:1:{other}:s:chat e", "kvgate:1:{acme}:s:chat c", ""])
def test_what_is_sealed_for_one_place_opens_in_no_other(place: str) -> None:
    vault = Vault({"k": NEW})
    with pytest.raises(VaultError, match="another place"):
        vault.open(vault.seal(TEXT, PLACE), place)


def test_no_byte_can_be_changed_or_left_out() -> None:
    """But for the mark: a text marked as plain is taken as it is, for whoever brings keys in has plain text there."""
    vault = Vault({"k": NEW})
    sealed = vault.seal(TEXT, PLACE)
    for at in range(1, len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(VaultError):
            vault.open(changed, PLACE)
        with pytest.raises(VaultError):
            vault.open(sealed[:at], PLACE)


@pytest.mark.parametrize("stored", [b"", b"\x01", b"\x02abc", b'{"json":1}', b"\x01\x01k", b"\x01\x01k" + bytes(12)])
def test_what_never_was_sealed_text_is_an_error_and_no_crash(stored: bytes) -> None:
    with pytest.raises(VaultError):
        Vault({"k": NEW}).open(stored, PLACE)
    with pytest.raises(VaultError):
        Vault().open(stored, PLACE)


def test_keys_change_while_old_text_still_opens() -> None:
    old, both, new = Vault({"old": OLD}), Vault({"new": NEW, "old": OLD}), Vault({"new": NEW})
    assert both.open(old.seal(TEXT, PLACE), PLACE) == TEXT
    assert new.open(both.seal(TEXT, PLACE), PLACE) == TEXT, "the first key seals"
    with pytest.raises(VaultError, match="not in KVGATE_STORE_KEYS"):
        new.open(old.seal(TEXT, PLACE), PLACE)


def test_another_key_under_the_same_id_opens_nothing() -> None:
    with pytest.raises(VaultError, match="changed"):
        Vault({"k": OLD}).open(Vault({"k": NEW}).seal(TEXT, PLACE), PLACE)


def test_plain_text_opens_once_there_are_keys_and_sealed_text_never_without() -> None:
    assert Vault().seal(TEXT, PLACE) == PLAIN + TEXT
    assert Vault({"k": NEW}).open(Vault().seal(TEXT, PLACE), PLACE) == TEXT
    with pytest.raises(VaultError):
        Vault().open(Vault({"k": NEW}).seal(TEXT, PLACE), PLACE)


def test_plain_text_can_be_refused() -> None:
    vault = vault_of(written(("k", NEW)), "refuse")
    assert vault.open(vault.seal(TEXT, PLACE), PLACE) == TEXT
    for stored in (Vault().seal(TEXT, PLACE), b"\x00" + vault.seal(TEXT, PLACE)[1:]):
        with pytest.raises(VaultError, match="refused"):
            vault.open(stored, PLACE)
    for keys in (None, SecretStr(f"plain,{written(('k', NEW)).get_secret_value()}")):
        with pytest.raises(KeysError, match="KVGATE_STORE_PLAIN=refuse needs a key that seals"):
            vault_of(keys, "refuse")


def test_keys_can_be_given_to_all_before_one_seals() -> None:
    first = vault_of(SecretStr(f"plain,{written(('k', NEW)).get_secret_value()}"))
    then = vault_of(written(("k", NEW)))
    assert not first.seals and then.seals
    for writer, reader in ((first, then), (then, first), (first, Vault())):
        assert reader.open(writer.seal(TEXT, PLACE), PLACE) == TEXT


def test_keys_are_read_in_order() -> None:
    vault = vault_of(SecretStr(f" {written(('2026-11', NEW), ('2026-10', OLD)).get_secret_value()} "))
    assert Vault({"2026-11": NEW}).open(vault.seal(TEXT, PLACE), PLACE) == TEXT
    assert vault.open(Vault({"2026-10": OLD}).seal(TEXT, PLACE), PLACE) == TEXT


@pytest.mark.parametrize("nothing", [None, SecretStr(""), SecretStr("  ")])
def test_without_keys_nothing_is_sealed(nothing: SecretStr | None) -> None:
    assert not vault_of(nothing).seals


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("c2VjcmV0", "key 1 must be written id:key"),
        (f"{base64.b64encode(NEW).decode()}", "key 1 must be written id:key"),
        ("bad id:c2VjcmV0", "key 1 must be written id:key"),
        ("k:c2VjcmV0", "key 1 has 6 bytes, it needs 32"),
        ("k:not base64!", "key 1 is not base64"),
        ("k:schlüssel", "key 1 is not base64"),
        (f"k:{base64.b64encode(NEW).decode()},", "key 2 must be written id:key"),
        (f"k:{base64.b64encode(NEW).decode()},k:{base64.b64encode(OLD).decode()}", "key 2 repeats one"),
    ],
)
def test_keys_that_cannot_be_used_are_one_line_without_them(value: str, said: str) -> None:
    with pytest.raises(KeysError, match=said) as refused:
        vault_of(SecretStr(value))
    told = str(refused.value)
    assert told.startswith("KVGATE_STORE_KEYS") and "\n" not in told
    for secret in ("c2VjcmV0", "not base64!", "schlüssel", base64.b64encode(NEW).decode(), "bad id"):
        assert secret not in told


def test_it_tells_what_was_sealed_with_the_key_that_seals_now() -> None:
    none, old, both = Vault(), Vault({"a": OLD}), Vault({"b": NEW, "a": OLD})
    assert [vault.current(none.seal(TEXT, PLACE)) for vault in (none, old, both)] == [True, False, False]
    assert [vault.current(old.seal(TEXT, PLACE)) for vault in (none, old, both)] == [False, True, False]
    assert [vault.current(both.seal(TEXT, PLACE)) for vault in (none, old, both)] == [False, False, True]
