"""Arguments of a call: the JSON object that they should be.

Rule: what is an object stays as it is; what is not goes whole, as a text, into an object of one key.
"""

import json

from policies import json_ladder
from policies.trimmed_text import whole

KEY = "kvgate_invalid_arguments"


def is_object(arguments: str) -> bool:
    """Whether `arguments` parse to a JSON object."""
    return arguments == "{}" or json_ladder.is_object(arguments)


def mended(arguments: str) -> str:
    """`arguments` if they are a JSON object of whole characters, else one that holds them; `{}` for nothing at all."""
    if arguments[:1] == "{" and arguments.isascii() and (arguments == "{}" or json_ladder.is_json(arguments)):
        return arguments
    if not arguments.strip():
        return "{}"
    clean = whole(arguments)
    return clean if is_object(clean) else json.dumps({KEY: clean}, ensure_ascii=False)
