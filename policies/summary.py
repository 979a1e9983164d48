"""A summary in the place of older messages, and what it takes to have one.

Rule: it is named by what it stands for and by how it was asked for, never by where or when it was made; so whoever
meets the same messages under the same policy finds the same text.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
import xxhash

from policies import record
from policies.covering import Cover
from policies.edit import Edit
from policies.extract_facts import extract
from policies.frame import Frame
from policies.keeping import NOTHING, Keeping
from policies.left_out import may_be_kept
from policies.trim_search import Count

SUMMARIZE = "summarize_older_turns"
NO_RECORDS: Final[Mapping[bytes, str]] = MappingProxyType({})


class Summary(msgspec.Struct, frozen=True, gc=False):
    """The `record` named `key` of so many `messages` with `of_tokens`, the `text` put behind the task, what that costs.

    `room` is how many characters facts were given that were found without a model; 0: a model wrote the record. Under
    `handle` what it stands for is kept; empty for none.
    """

    cover: Cover
    key: bytes
    record: str
    text: str
    tokens: int
    room: int = 0
    messages: int = 0
    of_tokens: int = 0
    handle: str = ""


class Ahead(msgspec.Struct, frozen=True, gc=False):
    """A record that was asked for, by its name."""

    cover: Cover
    key: bytes


class Wanted(msgspec.Struct, frozen=True):
    """A record of what `cover` covers, wanted from a model under the name `key`.

    `urgent`: a mark is passed and it would be used at once. `make`: it is worth a call; else it is used if it is there.
    `others`: records of other stops that would do as well, by their names, the latest first. `before` is the name of
    the record in force. `edits` are those of the messages before the stop, as they have been sent; `replaced_tokens`
    is what the record replaces.
    """

    cover: Cover
    key: bytes
    urgent: bool
    make: bool
    replaced_tokens: int
    others: tuple[bytes, ...] = ()
    before: bytes = b""
    edits: tuple[Edit, ...] = ()


def name_of(prefix: bytes, made: str) -> bytes:
    """16 bytes that name a record: of the messages `prefix` names, made as `made` says."""
    return xxhash.xxh3_128_digest(b"%b|%d|%b" % (prefix, record.VERSION, made.encode()))


def left_out(cover: Cover, head: frozenset[int]) -> list[int]:
    """The messages that a summary stands for."""
    return [at for at in range(cover.at + 1, cover.stop) if at not in head and at != cover.bridge]


def summarized(
    frame: Frame, cover: Cover, text: str, key: bytes, count: Count, room: int = 0, keeping: Keeping = NOTHING
) -> Summary:
    """A record as it is sent; it says where what it stands for is kept as far as `keeping` allows."""
    gone = left_out(cover, frame.head)
    handle = handle_for(frame, gone, keeping)
    framed = record.framed(text, len(gone), handle)
    of_tokens = standing_for(frame, cover)
    return Summary(cover, key, text, framed, count(framed), room, len(gone), of_tokens, handle)


def handle_for(frame: Frame, gone: Sequence[int], keeping: Keeping) -> str:
    """Under which handle so many messages would be kept; empty where they would not."""
    if keeping is NOTHING:
        return ""
    messages = [frame.conversation.messages[at] for at in gone]
    return keeping.handle_of_messages([message.digest for message in messages]) if may_be_kept(messages) else ""


def standing_for(frame: Frame, cover: Cover) -> int:
    """Tokens of what a summary of `cover` stands for."""
    return sum(frame.conversation.messages[at].tokens for at in left_out(cover, frame.head))


def facts(frame: Frame, cover: Cover, room: int) -> str:
    """The record of facts that can be put together of what `cover` covers, in so many characters."""
    found = extract([frame.conversation.messages[at] for at in left_out(cover, frame.head)], frame.read)
    return record.harmless(found.written(room))
