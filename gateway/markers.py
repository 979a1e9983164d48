"""Markers of a prefix cache (`cache_control`), which clients move from message to message as a conversation grows.

Rule: a message is the same with and without one. They reach an engine as they came, unless it would write them into the
prompt; then they are cut out where they stand, and every other byte stays.
"""

import re
from typing import Final

MARKER: Final = b'"cache_control"'
_VALUE: Final = rb'"cache_control"[ \t\r\n]*:[ \t\r\n]*(?:\{[^{}]*\}|null)'
_FIELD: Final = re.compile(rb"[ \t\r\n]{0,4},[ \t\r\n]*" + _VALUE + rb"|" + _VALUE + rb"[ \t\r\n]*,?[ \t\r\n]*")
"""With the comma before it, else with the one behind. Inside a text its quotes would be escaped.

White space before the comma is looked for as far as a few bytes, so that without end of it takes linear time.
"""


def without_markers(data: bytes) -> bytes:
    """JSON without its markers; the very same object if it has none."""
    return data if data.find(MARKER) < 0 else _FIELD.sub(b"", data)
