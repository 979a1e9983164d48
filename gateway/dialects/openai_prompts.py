"""Prompts that are no conversation: a text, token ids, or a list of either, each of which the engine runs on its own.

Rule: what is limited is one prompt, so of several the longest is the one that is counted.
"""

import msgspec

SEVERAL = (b'"', b"[")
"""How the first item begins where a list is a list of prompts; token ids are numbers."""


def prompts_of(field: bytes) -> tuple[bytes, ...]:
    """The prompts in a raw `prompt` or `input` field, raw: a text or a list of ids is one."""
    try:
        items = [bytes(item) for item in msgspec.json.decode(field, type=list[msgspec.Raw])]
    except msgspec.ValidationError:
        return (field,)
    return tuple(items) if items and items[0].startswith(SEVERAL) else (field,)


def countable(prompt: bytes) -> tuple[bytes, int]:
    """The text of one raw prompt as an engine reads it, and how many tokens came as ids."""
    try:
        value = msgspec.json.decode(prompt)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return prompt, 0
    if isinstance(value, str):
        return value.encode(), 0
    ids = sum(isinstance(item, int) for item in value) if isinstance(value, list) else 0
    return (b"" if ids or not value else prompt), ids
