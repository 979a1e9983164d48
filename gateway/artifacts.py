"""`GET /v1/artifacts/{handle}`: an original as JSON, whole, a part of it, or the lines that hold something.

Rule: the text is told exactly, a lone surrogate as its escape; a parameter that is not understood is refused by name.
"""

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from gateway.errors import ArtifactNotFound, InvalidRequest
from gateway.originals import Original
from policies.keeping import HANDLE

PARAMETERS: Final = ("start", "characters", "contains")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


def handle_of(written: str) -> str:
    """The handle in a path. Raises `ArtifactNotFound` for what cannot be one, like for one that is not there."""
    if HANDLE.fullmatch(written) is None:
        raise not_found()
    return written


def not_found() -> ArtifactNotFound:
    """Unknown, another tenant's or no more: the same answer."""
    return ArtifactNotFound("There is no such artifact, or no more.")


def asked(query: str) -> Mapping[str, str]:
    """The parameters of a query. Raises `InvalidRequest`."""
    given = parse_qsl(query, keep_blank_values=True, max_num_fields=None)
    found = dict(given)
    for name in found:
        if name not in PARAMETERS:
            raise InvalidRequest(
                f"`{name[:64]}` is no parameter here; known: {', '.join(PARAMETERS)}.", param=name[:64]
            )
    if len(found) < len(given):
        raise InvalidRequest("A parameter was given twice.")
    for name in ("start", "characters"):
        if name in found and _NUMBER.fullmatch(found[name]) is None:
            raise InvalidRequest(f"`{name}` must be a whole number, 0 or more.", param=name)
    return found


def body(handle: str, original: Original, parameters: Mapping[str, str], now: float) -> bytes:
    """The answer: `characters` of the text from `start` on; with `contains` of its lines that hold that, numbered."""
    text = original.text
    if "contains" in parameters:
        text = matching(text, parameters["contains"])
    start = int(parameters.get("start", 0))
    stop = start + int(parameters["characters"]) if "characters" in parameters else len(text)
    told = {
        "id": handle,
        "object": "artifact",
        "expires_at": int(now + original.seconds_left),
        "start": start,
        "characters": len(text),
        "content": text[start:stop],
    }
    return json.dumps(told).encode()


def matching(text: str, wanted: str) -> str:
    """The lines that contain `wanted`, each behind its number, counted from 1."""
    lines = enumerate(text.split("\n"), 1)
    return "\n".join(f"{number}: {line}" for number, line in lines if wanted in line)
