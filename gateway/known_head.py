"""The head of a request that has come before on the same connection, known again by its bytes.

Rule: only what llhttp has read and accepted once is known, and only when every byte of it comes again; the length of
the body alone may differ. Clients that keep a connection send one head all the time, so nearly every request is.
"""

import re
from typing import Final

from msgspec.structs import replace

from gateway.call import Request
from gateway.credential import Credential
from gateway.errors import NotAuthenticated

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]{1,9})\r\n", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_SINGULAR: Final = (b"transfer-encoding", b"expect", b"upgrade")
"""Headers that make the next request one that llhttp has to see."""


class KnownHead:
    """One head: what stands before and behind the length of its body, and the request it makes."""

    __slots__ = ("_before", "_behind", "_bytes", "_most_bytes", "_request")

    def __init__(self, before: bytes, behind: bytes, request: Request, most_bytes: int) -> None:
        self._before = before
        self._behind = behind
        self._bytes = len(before) + len(behind)
        self._request = request
        self._most_bytes = most_bytes

    @classmethod
    def of(cls, data: bytes, request: Request, most_bytes: int) -> "KnownHead | None":
        """The head of `request`, which came whole as `data`, to be known again; None if it cannot be.

        `most_bytes`: how long a body may be.
        """
        body = request.body
        if not request.keep_alive or request.http10 or any(name in request.headers for name in _SINGULAR):
            return None
        head = data[: len(data) - len(body)]
        length = _LENGTH.search(head)
        if not body or not data.endswith(body) or length is None or head.find(_END) != len(head) - len(_END):
            return None
        try:
            credential = Credential.of(request.headers)
        except NotAuthenticated:
            credential = None  # which is told whoever sends it
        known = replace(request, body=b"", credential=credential)
        return cls(head[: length.start(1)], head[length.end(1) :], known, most_bytes)

    def again(self, data: bytes) -> Request | None:
        """The request, if `data` is this head and a whole body and nothing else."""
        rest = len(data) - self._bytes  # the body, and the digits of its length
        size = rest - len(str(rest))
        head = b"%b%d%b" % (self._before, size, self._behind)
        if len(head) + size < len(data):  # such as 98 of 101
            size += 1
            head = b"%b%d%b" % (self._before, size, self._behind)
        if not 0 < size <= self._most_bytes or not data.startswith(head):
            return None
        return replace(self._request, body=data[len(head) :])
