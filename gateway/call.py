"""What passes through the pipeline: the request as received, the call in neutral form, and how it ended.

Rule: the body is kept as the very bytes received; what is read out of it is read once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from gateway.credential import Credential
from gateway.identity import NO_HINTS, SessionHints

if TYPE_CHECKING:
    from gateway.dialects.base import Dialect

Outcome = Literal[
    "ok",
    "refused",
    "denied",
    "client_gone",
    "client_slow",
    "engine_refused",
    "engine_failed",
    "broken",
    "failed",
    "dry_run",
]


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request. Header names are lower case; repeated headers are joined by a comma, as HTTP defines.

    `credential`: the one in its headers, where they came before and it was found there.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes = b""
    keep_alive: bool = True
    http10: bool = False
    query: str = ""
    credential: Credential | None = None


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request in neutral form.

    `messages` are the wire bytes of each message; `present` names the owned top-level fields the client sent, with
    their raw JSON values. `choices` come back for all prompts together, and an engine may compute `sequences` to choose
    from. `content_bytes` bounds the tokens of all prompts from above (a token is at least one byte), `prompt_bytes`
    those of the longest one. `largest_output_bytes` is the largest message that may be a tool's output. `overhead` is
    text outside the messages that a template may put into the prompt, the `tools` first; `overhead_tokens` what came as
    token ids; of several `prompts`, each run on its own, those of the longest. `mended` places of the body held lone
    surrogates, which no engine takes. `truncates`: the engine is asked to compute less of a prompt than there is.
    """

    dialect: "Dialect"
    body: bytes
    model: str
    mended: int = 0
    stream: bool = False
    wants_usage: bool = False
    messages: tuple[bytes, ...] = ()
    content_bytes: int = 0
    prompt_bytes: int = 0
    largest_output_bytes: int = 0
    overhead: bytes = b""
    tools: bytes = b""
    overhead_tokens: int = 0
    max_tokens: int | None = None
    choices: int = 1
    sequences: int = 1
    prompts: int = 1
    generates: bool = True
    truncates: bool = False
    present: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    hints: SessionHints = NO_HINTS
