"""Two scripts joined in one: each sees its own keys and arguments, and both replies come back."""

from budgets.script import Script, Step, both
from gateway.store import Store


def step(name: str, source: str, keys: list[str], args: list[str]) -> Step[object]:
    return Step(Script(name, source), keys, args, lambda reply: reply)


ECHO = """
local all = {}
for _, key in ipairs(KEYS) do all[#all + 1] = key end
for _, argument in ipairs(ARGV) do all[#all + 1] = argument end
return all
"""
EARLY = "if #KEYS == 0 then return 7 end -- the rest is not reached\nreturn redis.call('SET', KEYS[1], ARGV[1])"


async def run(store: Store, joined: Step[tuple[object, object]]) -> tuple[object, object]:
    return joined.read(await store.run(joined.script, joined.keys, joined.args))


async def test_each_sees_its_own(store: Store) -> None:
    one = step("one", ECHO, ["{t}:a", "{t}:b"], ["1"])
    other = step("other", ECHO, ["{t}:c"], ["2", "3"])
    assert await run(store, both(one, other)) == ([b"{t}:a", b"{t}:b", b"1"], [b"{t}:c", b"2", b"3"])


async def test_a_return_ends_its_own_script_only(store: Store) -> None:
    early = step("early", EARLY, [], [])
    late = step("late", EARLY, ["{t}:k"], ["v"])
    assert await run(store, both(early, late)) == (7, b"OK")
    assert await store.command("GET", "{t}:k") == b"v"


async def test_the_second_finds_what_the_first_wrote(store: Store) -> None:
    write = step("write", "return redis.call('SET', KEYS[1], ARGV[1])", ["{t}:k"], ["v"])
    read = step("read", "return redis.call('GET', KEYS[1])", ["{t}:k"], [])
    assert await run(store, both(write, read)) == (b"OK", b"v")
