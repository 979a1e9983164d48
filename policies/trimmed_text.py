"""A trim carried out: the text that is sent in place of a tool output.

Rule: the same text and the same `Trim` give the same bytes, with no counting; what is missing is said where it is
missing, in tokens and lines, and that it is lost; JSON stays JSON; a lone surrogate never leaves.
"""

import json

from policies import json_ladder
from policies.memory import Trim


def render(text: str, trim: Trim) -> str:
    """`text` as `trim` says."""
    if trim.form == "json":
        return whole(json_ladder.render(json_ladder.parse(text), trim.level))
    cut = whole(_spliced(text, trim))
    if trim.form == "wrapped":
        return json.dumps({"kvgate_incomplete": True, "excerpt": cut}, ensure_ascii=False)
    return cut


def _spliced(text: str, trim: Trim) -> str:
    """Head, marker, the lines kept of the middle, tail."""
    (_, start), *lines, (stop, _) = trim.spans
    tokens = trim.of_tokens * (stop - start) // max(1, len(text))
    missing = f"about {tokens} tokens in {text.count(chr(10), start, stop) + 1} lines left out here, not recoverable"
    before = "" if text[:start].endswith("\n") or not start else "\n"
    if not lines:
        return f"{text[:start]}{before}[kvgate: {missing}]\n{text[stop:]}"
    kept = "\n".join(text[first:last] for first, last in lines)
    return (
        f"{text[:start]}{before}[kvgate: {missing}, but for these that look like errors:]\n"
        f"{kept}\n[kvgate: end of what was left out]\n{text[stop:]}"
    )


def whole(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
