"""The rights that docs/redis.md asks of an operator are enough, and only keys of ours are touched."""

import re
from pathlib import Path

from budgets.correction import correcting
from budgets.ledger import Grant, Scope, reserve, settle
from budgets.limit import Limit
from gateway import embedded, histories, sessions
from gateway.counting import Counter
from gateway.digests import Chain
from gateway.histories import Key, Wish
from gateway.metrics import Metrics
from gateway.originals import Originals, checked
from gateway.ratios import Ratios
from gateway.replies import Replies
from gateway.service import Service
from gateway.sessions import Progress, SessionLimits, Sessions
from gateway.store import Store
from gateway.summaries import Right, Summaries
from gateway.tenant_book import Note, TenantBook
from gateway.tenant_record import StoredTenant
from gateway.texts import Place, Text, Texts, counting
from gateway.vault import Vault
from tests.integration.test_store import connected
from tests.unit.gateway.samples import caller, model

DOCUMENT = Path(__file__).parents[2] / "docs" / "redis.md"


def documented_commands() -> list[str]:
    """The names in capitals of the paragraph that lists them."""
    (paragraph,) = re.findall(r"An account for it needs(.*?)\n\n", DOCUMENT.read_text(), re.DOTALL)
    return re.findall(r"`([A-Z|]+)`", paragraph)


async def test_an_account_with_the_documented_rights_is_enough(store: Store, valkey: embedded.EmbeddedServer) -> None:
    rights = [f"+{command.lower()}" for command in documented_commands()]
    await store.command("ACL", "SETUSER", "kvgate", "reset", "on", ">pw", "~kvgate:*", *rights)
    try:
        async with connected(valkey.url.replace("unix://", "unix://kvgate:pw@") + "?db=1") as limited:
            await every_script(limited)
    finally:
        await store.command("ACL", "DELUSER", "kvgate")


async def every_script_of_histories(store: Store) -> None:
    key, vault, limits = Key(Place("acme"), "chat"), Vault(), SessionLimits()
    opening = histories.opening(vault, key, Wish(begin=True), "turn")
    history = opening.read(await store.run(opening.script, opening.keys, opening.args))
    for step in (
        histories.holding(history),
        histories.appending(history, vault, [b"hello"], limits),
        histories.leaving(history),
    ):
        ended = step.read(await store.run(step.script, step.keys, step.args))
        assert ended.done == (ended.texts is not None or step.args[2] == "hold")
    again = histories.opening(vault, key, Wish(), "next")
    assert again.read(await store.run(again.script, again.keys, again.args)).messages == (b"hello",)
    look = histories.reading(vault, key)
    assert look.read(await store.run(look.script, look.keys, look.args)).messages == (b"hello",)
    assert await Texts(store, Metrics()).forget(key.place, [key.member])


async def every_script(store: Store) -> None:
    kept, limits = Sessions(store), SessionLimits(live_sessions=1)
    assert not await kept.delete("acme", "none")
    for id in ("first", "second"):  # the second takes the place of the first
        session = await kept.load("acme", id, Chain([b"a" * 16]))
        assert await kept.save(session, Progress(Chain([b"a" * 16])), limits)
    for member in "ab":
        step = counting(Place("acme"), [Text(f"o:{member}", 10, 60)], 10)
        await Texts(store, Metrics()).settle(
            Place("acme"), step.read(await store.run(step.script, step.keys, step.args))
        )
    await every_script_of_histories(store)
    remembering = sessions.remembering(session, 0, 0, b"edits")
    assert remembering.read(await store.run(remembering.script, remembering.keys, remembering.args)) is None
    service = Service(caller(), model(), (), Counter(len))
    originals = Originals(store, Vault(), Metrics())
    assert await originals.hold(service, "first", {}, {"kvo_a": lambda: "text"}) == {"kvo_a"}
    assert await originals.hold(service, "first", {"kvo_a": 1.0}, {"kvo_a": lambda: "text"}) == {"kvo_a"}
    assert await originals.read(service.place, "kvo_a")
    summaries = Summaries(store, Vault(), Metrics())
    right = await summaries.take(service, "first", b"n" * 16, 60)
    assert isinstance(right, Right) and await summaries.put(right, "text", 60)
    assert await summaries.read(service, "first", [b"n" * 16], 60) == {b"n" * 16: "text"}
    assert await summaries.forget(service.place, "first")
    loading = checked(sessions.loading("acme", "first", Chain([b"a" * 16])), service.place, "first")
    read = loading.read(await store.run(loading.script, loading.keys, loading.args))
    assert set(read.originals) == {"kvo_a"}
    assert await originals.forget(service.place, "first")
    for tokens in (5, 6):
        replies = Replies()
        replies.learn(("acme", "m"), tokens)
        await replies.exchange(store)
        assert not replies._news, "the store took it"
        ratios = Ratios()
        ratios.learn("m", "bytes", 40, 10 * tokens)
        await ratios.exchange(store)
        assert not ratios._news, "the store took it"
    scope = Scope("acme", (Limit(dimension="requests", amount=1, per_seconds=1e6),))
    grant = await reserve(store.run, scope, {"requests": 1})
    assert isinstance(grant, Grant)
    assert await settle(store.run, grant, {"requests": 1})
    correction = correcting(scope, 0, 0.0)
    await store.run(correction.script, correction.keys, correction.args)
    book = TenantBook(store)
    note = Note("ann", "cli", "tenant created", {})
    for record in (StoredTenant("one"), None):
        assert await book.put("one", await book.find("one"), record, note, "mark")
        assert (await book.news((await book.news("")).last)).changed == {}
    assert len(await book.changes()) == 2
