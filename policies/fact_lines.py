"""What one line says: values, named values, decisions.

Rule: letter by letter, by patterns; each is tried only where a faster look does not rule it out, so the answer is the
pattern's own.
"""

import re

VALUES = re.compile(
    r"https?://[^\s\"'<>)\]]{3,200}"
    r"|(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@+-]{1,80}){2,12}"
    r"|\b[\w-]{1,60}(?:/[\w.@+-]{1,60}){1,8}\.\w{1,6}\b"
    r"|\b[\w-]{1,60}\.(?:py|pyi|js|jsx|ts|tsx|go|rs|c|cc|cpp|h|hpp|java|rb|sh|sql|md|rst|txt|json|ya?ml|toml|cfg|ini|csv|log|html|css)\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,64}\b"
    r"|\b[A-Z][A-Z0-9]{1,9}-\d{1,9}\b"
    r"|(?<![\w.])[-+]?\d[\d,_]*(?:\.\d+)?%?(?![\w])"
)
"""Values that must survive to the letter: addresses, paths, files, hashes, tickets, numbers."""

NAMED = re.compile(
    r"[A-Za-z_][\w .\-\[\]]{1,50}?[\"']?\s?(?:=|:|->|=>|\bis\b)\s?[\"']?[^\s\"',;{}\[\]]*[\d/@][^\s\"',;{}\[\]]*"
)
"""A name and its value."""
DECIDED = re.compile(
    r"\b(?:decid\w+|agreed?|chose|chosen|settled on|go(?:ing)? with|instead of|rather than|must(?: not)?|never|always|"
    r"do not|don't|should(?: not)?|we(?: wi|')ll|let's|prefer\w*|approved?|rejected?|conclu\w+|root cause|because)\b",
    re.I,
)

# What follows tells fast that a pattern above can match nowhere in a line; most lines are told so.
_MAY_BE_VALUE = re.compile(r"\d|/|\.[a-z]|[0-9a-f]-[0-9a-f]{4}-")
_SIGN = re.compile(r"(?:=|:|->|=>|\bis\b)(?=\s?[\"']?[^\s\"',;{}\[\]]*[\d/@])")
_NAME_BACKWARDS = re.compile(r"\s?[\"']?[\w .\-\[\]]+?[A-Za-z_]")
_NAME_CHARACTERS = 53
_DECIDING = (
    *("decid", "agree", "chose", "settled on", "go with", "going with", "instead of", "rather than", "must", "never"),
    *("always", "do not", "don't", "should", "we will", "we'll", "let's", "prefer", "approve", "reject", "conclu"),
    *("root cause", "because"),
)


def value(line: str) -> re.Match[str] | None:
    """Where the first value of a line stands."""
    return VALUES.search(line) if _MAY_BE_VALUE.search(line) else None


def named_value(line: str) -> str:
    """The first named value of a line; a name stands directly before a sign."""
    for sign in _SIGN.finditer(line):
        start = max(0, sign.start() - _NAME_CHARACTERS)
        if _NAME_BACKWARDS.match(line[start : sign.start()][::-1]):
            found = NAMED.search(line, start)
            return found[0].strip() if found else ""
    return ""


def decision(line: str) -> re.Match[str] | None:
    """Where a line says that something was decided, wanted or ruled out."""
    if line.isascii():
        small = line.lower()
        if True not in [word in small for word in _DECIDING]:
            return None
    return DECIDED.search(line)
