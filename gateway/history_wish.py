"""What a request asks of a stored history: read, and checked against what is there.

Rule: nothing is guessed. A wish that is not understood, names no session or goes with no history is refused; so is what
an SDK sends again by itself and the history has already.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gateway import errors
from gateway.call import Call
from gateway.dialects.base import ReplyReader
from gateway.dialects.roles import role_of
from gateway.histories import NOT_AGAIN, History, Key, Wish
from gateway.identity import named
from gateway.tenants import Caller
from gateway.texts import Place

HEADER: Final = b"x-context"
SESSION: Final = b"x-session-id"
RETRIES: Final = b"x-stainless-retry-count"
"""In which the OpenAI and Anthropic SDKs tell that they send a request again."""
_MEANT: Final = re.compile(rb"[ \t]*stored\b", re.IGNORECASE)
_WISH: Final = re.compile(rb"[ \t]*stored[ \t]*(?:;[ \t]*(?:(new)|at=(\d{1,9}))[ \t]*)?", re.IGNORECASE)


def meant(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the header is ours: others may have one of that name."""
    return _MEANT.match(headers[HEADER]) is not None


def wish_of(headers: Mapping[bytes, bytes]) -> Wish:
    """What `X-Context` asks for. Raises `InvalidRequest`."""
    found = _WISH.fullmatch(headers[HEADER])
    if found is None:
        raise errors.InvalidRequest("`X-Context` must be `stored`, `stored; new` or `stored; at=N`.", param="X-Context")
    return Wish(begin=found[1] is not None, believed=None if found[2] is None else int(found[2]))


def key_of(caller: Caller, headers: Mapping[bytes, bytes]) -> Key:
    """The history that a request names. Raises `InvalidRequest`: it is never found by how a conversation opens."""
    given = headers.get(SESSION, b"").decode("latin-1").strip()
    id = None if "|" in given else named(given)
    if id is None:
        raise errors.InvalidRequest(
            "`X-Context: stored` needs an `X-Session-Id` of 1 to 256 characters out of A-Z a-z 0-9 . _ : @ / + = -.",
            param="X-Session-Id",
        )
    return Key(place_of(caller), id)


def place_of(caller: Caller) -> Place:
    return Place(caller.tenant, caller.may.organisation)


def reader_of(call: Call) -> ReplyReader:
    """What reads the reply. Raises `InvalidRequest` for a call that cannot become a turn of a history."""
    reader = call.dialect.reader(call)
    if reader is None:
        raise _unfit("this path")
    if call.choices != 1:
        raise _unfit(f"`n` = {call.choices}; it must be 1")
    if role_of(call.messages[-1]) == "assistant":
        raise _unfit("a reply that the client has begun: the last message must not be the assistant's")
    return reader


def _unfit(what: str) -> errors.Fault:
    return errors.InvalidRequest(f"`X-Context: stored` does not go with {what}.", param="X-Context")


def bounded(history: History, new: Sequence[bytes], most_bytes: int) -> None:
    """Raises `HistoryFull` if the history would be too large with what is new."""
    size = history.bytes + sum(map(len, new))
    if size > most_bytes:
        raise errors.HistoryFull(
            f"The history would have {size} bytes with these messages, and may have {most_bytes}.",
            extra={"limit": most_bytes, "requested": size, "stored_messages": len(history.messages)},
        )


def sent_again(headers: Mapping[bytes, bytes]) -> bool:
    """Whether an SDK repeats the request by itself."""
    return headers.get(RETRIES, b"0") != b"0"


def new_to(history: History, new: Sequence[bytes]) -> None:
    """Raises `HistoryMoved` for what is sent again and stored already: only its answer was lost."""
    if new == history.latest:
        raise errors.HistoryMoved(
            "These messages are stored already, with the reply to them, which did not arrive.",
            headers=NOT_AGAIN,
            extra={"stored_messages": len(history.messages)},
        )
