"""The prefix cache of the context bench: whole blocks, prefixes only, and never the last token."""

from array import array

from bench.prefix_cache import PrefixCache, Tokens


def tokens(*values: int) -> Tokens:
    return array("I", values)


def test_a_prompt_finds_the_whole_blocks_of_what_came_before() -> None:
    cache = PrefixCache(block_tokens=4)
    assert cache.serve(tokens(*range(10)), tokens()) == 0
    assert cache.serve(tokens(*range(11)), tokens()) == 8
    assert cache.serve(tokens(*range(4), 99), tokens()) == 4


def test_one_changed_token_loses_all_blocks_behind_it() -> None:
    cache = PrefixCache(block_tokens=4)
    cache.serve(tokens(*range(40)), tokens())
    assert cache.serve(tokens(*range(9), 99, *range(10, 40)), tokens()) == 8


def test_a_block_in_another_place_is_another_block() -> None:
    cache = PrefixCache(block_tokens=2)
    cache.serve(tokens(1, 2, 3, 4), tokens())
    assert cache.serve(tokens(3, 4, 1, 2, 9), tokens()) == 0


def test_the_last_token_is_always_computed() -> None:
    cache = PrefixCache(block_tokens=4)
    cache.serve(tokens(*range(8)), tokens())
    assert cache.serve(tokens(*range(8)), tokens()) == 4


def test_a_reply_is_kept_but_for_its_last_token() -> None:
    cache = PrefixCache(block_tokens=4)
    cache.serve(tokens(*range(6)), tokens(6, 7, 8, 9, 10, 11))
    assert cache.serve(tokens(*range(20)), tokens()) == 8
    assert cache.serve(tokens(*range(20)), tokens()) == 16


def test_what_was_sent_long_before_is_still_there() -> None:
    cache = PrefixCache(block_tokens=4)
    cache.serve(tokens(*range(8)), tokens())
    cache.serve(tokens(*range(50, 58)), tokens())
    assert cache.serve(tokens(*range(9)), tokens()) == 8
