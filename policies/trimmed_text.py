"""A trim carried out: the text that is sent in place of a tool output.

Rule: the same text and the same `Trim` give the same bytes, with no counting; what is missing is said where it is
missing, in tokens and lines, and that it is lost; JSON stays JSON; a lone surrogate never leaves.
"""

import json

from policies import json_ladder
from policies.folding import folded
from policies.memory import Trim
from policies.text_spans import boundary

QUOTED_CHARACTERS = 80
"""Of the output that a pointer points to, enough to recognise it."""


def render(text: str, trim: Trim) -> str:
    """`text` as `trim` says."""
    match trim.form:
        case "json":
            return whole(json_ladder.render(json_ladder.parse(text), trim.level))
        case "wrapped":
            return json.dumps({"kvgate_incomplete": True, "excerpt": whole(_spliced(text, trim))}, ensure_ascii=False)
        case "folded":
            return whole(_spliced(folded(text), trim))
        case "same":
            return _note(text, "kvgate_same", f"the same output as an earlier one above, beginning: {_beginning(text)}")
        case "superseded":
            return _note(text, "kvgate_superseded", "an older output left out; the same call was made again below")
        case "text":
            return whole(_spliced(text, trim))


def _note(text: str, key: str, note: str) -> str:
    """What stands for a whole output: in JSON if that looks like JSON."""
    if text.lstrip()[:1] in ("{", "[", '"'):
        return json.dumps({key: note}, ensure_ascii=False)
    return f"[kvgate: {note}]"


def _beginning(text: str) -> str:
    line = text.lstrip().partition("\n")[0].rstrip()
    return whole(line[: boundary(line, QUOTED_CHARACTERS)])


def _spliced(text: str, trim: Trim) -> str:
    """Head, marker, the lines kept of the middle, tail; all of it where no spans are given."""
    if not trim.spans:
        return text
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
