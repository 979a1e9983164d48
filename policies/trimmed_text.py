"""A trim carried out: the text that is sent in place of a tool output.

Rule: the same text and the same `Trim` give the same bytes, with no counting; what is missing is said where it is
missing, in tokens and lines, and that it is lost or under which handle it is kept; JSON stays JSON; a lone surrogate
never leaves.
"""

import json
from collections.abc import Callable

from policies import json_ladder, json_rows
from policies.folding import folded
from policies.memory import Trim
from policies.text_spans import boundary

Render = Callable[[str, Trim], str]
"""How a trim is carried out: `render`, or one that remembers what came of it."""

ORIGINAL = "kvgate_original"
KEPT = "kept"
QUOTED_CHARACTERS = 80
"""Of the output that a pointer points to, enough to recognise it."""


def render(text: str, trim: Trim) -> str:
    """`text` as `trim` says."""
    match trim.form:
        case "json":
            return whole(shorter_json(json_ladder.parse(text), trim))
        case "rows":
            if (found := json_rows.rows(text)) is None:
                raise ValueError("no rows")
            return whole(fewer_rows(found, trim))
        case "wrapped":
            return json.dumps({"kvgate_incomplete": True, "excerpt": whole(_spliced(text, trim))}, ensure_ascii=False)
        case "folded":
            return whole(_spliced(folded(text), trim))
        case "same":
            return _note(text, "kvgate_same", f"the same output as an earlier one above, beginning: {_beginning(text)}")
        case "superseded":
            note = "an older output left out; the same call was made again below"
            return _note(text, "kvgate_superseded", f"{note}; {_fate(trim)}" if trim.handle else note)
        case "text":
            return whole(_spliced(text, trim))


def _fate(trim: Trim) -> str:
    return f"kept as {trim.handle}" if trim.handle else json_ladder.LOST


def shorter_json(value: json_ladder.Json, trim: Trim) -> str:
    """With a handle once, behind the rest: there may be many markers."""
    if isinstance(value, dict) and ORIGINAL not in value and trim.handle:
        return _with_last(json_ladder.render(value, trim.level, KEPT), f'"{ORIGINAL}":"{trim.handle}"')
    if isinstance(value, list) and trim.handle:
        return _with_last(json_ladder.render(value, trim.level, KEPT), f'"[kvgate: {_fate(trim)}]"')
    return json_ladder.render(value, trim.level, _fate(trim))


def fewer_rows(rows: json_rows.Rows, trim: Trim) -> str:
    """An array with fewer items; the handle stands where `shorter_json` puts it. Raises `ValueError`."""
    (_, head), (tail, stop) = trim.spans
    if rows.members is not None and ORIGINAL not in rows.members and trim.handle:
        return _with_last(rows.cut(head, stop - tail, KEPT), f'"{ORIGINAL}":"{trim.handle}"')
    return rows.cut(head, stop - tail, _fate(trim))


def _with_last(container: str, entry: str) -> str:
    comma = "," if len(container) > len("{}") else ""
    return f"{container[:-1]}{comma}{entry}{container[-1]}"


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
    missing = f"about {tokens} tokens in {text.count(chr(10), start, stop) + 1} lines left out here, {_fate(trim)}"
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
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
