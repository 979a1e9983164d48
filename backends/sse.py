"""Watches one event stream on its way to the client and keeps what the gateway must know about it.

The rule: the bytes that arrived are the bytes that leave. One thing alone is ever removed, the usage frame that the
client did not ask for (`choices` empty, `usage` an object). A frame is decoded only when it can matter. A frame
that is not finished is held back, up to the size of the largest usage frame; no client can show a token before the
blank line that ends its frame, so this delays nothing visible, and a stream that is cut never ends in half a frame.
"""

import re
from typing import Final, Literal

from backends.chunks import LONGEST_KNOWN_BYTES, LOWER, UPPER, body_of
from backends.frames import Facts, Usage, payload_of, read_frame

__all__ = ["Scanner", "Usage", "Verdict"]

Verdict = Literal["complete", "truncated", "error"]

# Two line ends in a row, each of them CRLF, CR or LF (WHATWG HTML, "Server-sent events"). Atomic, or the two halves
# of one CRLF would pass for two line ends.
_BORDER: Final = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_LONGEST_BORDER_BYTES: Final = 4

# The text a frame brings, up to the quote that ends it.
_TEXT: Final = re.compile(rb'"(?:content|text|reasoning|reasoning_content)":"(?:[^"\\]|\\.)*')
_LEARN_EVERY_FRAMES: Final = 16
_QUOTE: Final = ord('"')
_CR: Final = ord("\r")

# Real usage frames have under 1 kB. The bound belongs to the definition of a removable frame, so that where the
# network cuts the stream never decides what is removed.
_MAX_USAGE_FRAME_BYTES: Final = 65_536


class Scanner(Facts):
    """Scanner of one reply. Feed it every piece of the body in order, then call `finish`.

    `strip_usage`: remove the usage frame. `choices`: how many choices must finish before an end of file without
    `[DONE]` counts as complete (n, times the number of prompts). The facts are attributes, see `Facts`.
    """

    __slots__ = (
        "_after_cr",
        "_calm",
        "_choices",
        "_dropped",
        "_head",
        "_held",
        "_learn_at",
        "_opened",
        "_plain_bytes",
        "_rear",
        "_sent_bytes",
        "_size_lines",
        "_strip_usage",
        "tail",
    )

    def __init__(self, *, strip_usage: bool, choices: int = 1) -> None:
        super().__init__()
        self.tail = b""
        self._strip_usage = strip_usage
        self._choices = choices
        self._opened = 0  # frames that opened a choice, before there was any content
        self._held = bytearray()  # the unfinished frame
        self._sent_bytes = 0  # how much of it has left already
        self._after_cr = False  # the last frame ended in CR: an LF that comes next belongs to it
        self._dropped = False  # the last frame was removed
        self._calm = False  # nothing held, first content seen: pieces of plain frames may pass unread
        self._size_lines = LOWER
        self._head = self._rear = b"\0"  # what comes before and after the text in this stream's plain chunks
        self._plain_bytes = 2  # of both
        self._learn_at = 0

    def feed(self, data: bytes) -> bytes:
        """The bytes to send on for `data`; the same object when nothing is removed or held."""
        if self._calm:
            if frames := _plain_frames(data):
                self.frames += frames
                return data
            if _one_frame(data):
                self._dropped = self._remove(data)
                return b"" if self._dropped else data
        forwarded = self._scan(data)
        self._calm = self.first_content and not self._held and not self._after_cr
        return forwarded

    def unread(self, read: bytes) -> int:
        """How much of the body is in `read`, a piece of it as HTTP frames it; 0 if it must be fed.

        What is not 0 has been taken in and is to be sent on as it is. `read` begins where a chunk begins.
        """
        if not self._calm:
            return 0
        size = len(read)
        if size < LONGEST_KNOWN_BYTES:
            # Nearly every read is one chunk of one frame that differs from the one before in its text alone.
            line = self._size_lines[size]
            text = read.removeprefix(line).removeprefix(self._head).removesuffix(self._rear)
            if len(line) + self._plain_bytes + len(text) == size and (_QUOTE not in text or _escaped(text)):
                self.frames += 1
                return size - len(line) - 2
        return self._unread(read)

    def finish(self) -> Verdict:
        """Call at the end of the body. `tail` then holds bytes never sent on: send them if the verdict is `complete`.

        `error`: an error frame came. `truncated`: neither `[DONE]` nor every choice's finish reason came.
        """
        if self._held:
            frame, sent = bytes(self._held), self._sent_bytes
            self._held.clear()
            self.tail = b"" if self._remove(frame) else frame[sent:]
        if self.error is not None:
            return "error"
        return "complete" if self.done or len(self.finish_reasons) >= self._choices else "truncated"

    @property
    def untold(self) -> int:
        """Frames that the usage does not hold, because the stream broke off after it was told.

        On the way vLLM tells it of one choice at a time.
        """
        if self.usage is None or self.done or len(self.finish_reasons) >= self._choices:
            return 0
        of_others = self.tokens - self.usage.completion_tokens if self._choices > 1 else 0
        return max(self.frames - self.told_at - (self.error is not None), of_others)

    @property
    def tokens(self) -> int:
        """Tokens by our own count: one a frame, but for those that open a choice and for an error's."""
        return max(0, self.frames - self.done - self._opened - (self.error is not None))

    @property
    def at_border(self) -> bool:
        """Whether what has been sent on ends with a whole frame, so that a frame of our own may follow it as it is."""
        return self._sent_bytes == 0

    def _unread(self, read: bytes) -> int:
        if body_bytes := self._several(read):
            return body_bytes
        body = body_of(read)
        frames = 0 if body is None else _plain_frames(body)
        if body is None or not frames:
            return 0
        self.frames += frames
        if frames == 1 and self.frames >= self._learn_at:
            self._learn(read, body)
        return len(body)

    def _several(self, read: bytes) -> int:
        """Chunks like the one before, several in one read."""
        *chunks, rest = read.split(self._rear)
        if rest or len(chunks) < 2:
            return 0
        body_bytes = 0
        for chunk in chunks:
            size = len(chunk) + len(self._rear)
            line = self._size_lines[size] if size < LONGEST_KNOWN_BYTES else b"\0"
            text = chunk.removeprefix(line).removeprefix(self._head)
            if len(line) + self._plain_bytes + len(text) != size or not (_QUOTE not in text or _escaped(text)):
                return 0
            body_bytes += size - len(line) - 2
        self.frames += len(chunks)
        return body_bytes

    def _learn(self, chunk: bytes, frame: bytes) -> None:
        self._learn_at = self.frames + _LEARN_EVERY_FRAMES
        if text := _TEXT.search(frame):
            self._head = frame[: frame.index(b':"', text.start()) + 2]
            self._rear = frame[text.end() :] + b"\r\n"
            self._plain_bytes = len(self._head) + len(self._rear)
            if len(chunk) < LONGEST_KNOWN_BYTES and not chunk.startswith(self._size_lines[len(chunk)]):
                self._size_lines = UPPER if self._size_lines is LOWER else LOWER

    def _scan(self, data: bytes) -> bytes:
        out = bytearray()
        rest = self._end_crlf(data, out)
        start = max(0, len(self._held) - _LONGEST_BORDER_BYTES + 1)
        self._held += rest
        taken = 0
        for end in _borders(self._held, start):
            frame = bytes(memoryview(self._held)[taken:end])
            taken = end
            self._dropped = self._remove(frame)
            if not self._dropped:
                out += frame[self._sent_bytes :]
            self._sent_bytes = 0
        if taken:
            self._after_cr = taken == len(self._held) and self._held.endswith(b"\r")
            del self._held[:taken]
        if len(self._held) > _MAX_USAGE_FRAME_BYTES:
            out += self._held[self._sent_bytes :]
            self._sent_bytes = len(self._held)
        return data if len(out) == len(data) and out == data else bytes(out)

    def _end_crlf(self, data: bytes, out: bytearray) -> bytes:
        if not (self._after_cr and data):
            return data
        self._after_cr = False
        if not data.startswith(b"\n"):
            return data
        if not self._dropped:
            out += b"\n"
        return data[1:]

    def _remove(self, frame: bytes) -> bool:
        """Take in one frame; True if it must not be sent on."""
        payload = payload_of(frame)
        if payload is None:
            return False
        self.frames += 1
        if self.first_content and not _eventful(frame):
            return False
        before = self.usage
        usage_only = read_frame(self, payload)
        if not (self.first_content or self.done):
            self._opened = min(self._opened + 1, self._choices)
        if self.usage is not None and self.usage is not before:
            if not usage_only and not self.finish_reasons:  # an engine that counts on the way knows
                self.frames = max(self.frames, self.usage.completion_tokens + self._opened)
            self.told_at = self.frames
        return usage_only and self._strip_usage and len(frame) <= _MAX_USAGE_FRAME_BYTES


def _escaped(text: bytes) -> bool:
    """Whether every quote in `text` has a backslash before it that stands for nothing else."""
    return text.find(b"\\\\") < 0 and text.count(b'"') == text.count(b'\\"')


def _borders(held: bytearray, start: int) -> list[int]:
    """Where frames end. The expression looks at every byte; nearly every stream has no CR, and needs it not."""
    if held.find(b"\r", start) >= 0:
        return [border.end() for border in _BORDER.finditer(held, start)]
    ends = []
    while (at := held.find(b"\n\n", start)) >= 0:
        start = at + 2
        ends.append(start)
    return ends


def _plain_frames(data: bytes) -> int:
    """How many frames `data` is made of, if it is whole frames and none of them needs reading; else 0."""
    if not (data.startswith(b"data:") and data.endswith(b"\n\n")) or _CR in data or _eventful(data):
        return 0
    borders = data.count(b"\n\n")
    if borders > 1 and data.count(b"\n\ndata:") != borders - 1:
        return 0
    return 0 if data.endswith(b"\n\n\n") else borders


def _one_frame(data: bytes) -> bool:
    return data.startswith(b"data:") and data.find(b"\n\n") == len(data) - 2 and _CR not in data


def _eventful(data: bytes) -> bool:
    """Whether a frame in `data` may carry usage, an error, a finish reason or the end.

    Inside a JSON string a quote is escaped, so that text a model writes cannot look like one of these keys. Keys
    that some engines send as null on every frame count only when they are not null.
    """
    return (
        data.find(b'"error"') >= 0
        or data.find(b"[DONE]") >= 0
        or _set(data, b'"finish_reason"')
        or _set(data, b'"usage"')
        or _set(data, b'"generated_text"')
    )


def _set(data: bytes, key: bytes) -> bool:
    """Whether a key stands in `data` without null behind it. `find`, because `in` raises and catches an error first."""
    return data.find(key) >= 0 and data.count(key) != data.count(key + b":null")
