"""What an engine finds of a prompt in its prefix cache: whole blocks, from the first token to the first that differs.

Rule: exact for one session with room enough, by the engine's own scheme: a block is named by all tokens up to its end
(the chains of the emulated engine), the blocks of a reply are kept like those of a prompt, and the last token of a
prompt is always computed. Sessions share nothing here; that an engine forgets is not looked at.
"""

from array import array
from typing import TypeAlias

from loadtest.blocks import Chain, extend, root

Tokens: TypeAlias = "array[int]"


class PrefixCache:
    """The blocks of one session on one engine, none of them ever lost."""

    def __init__(self, block_tokens: int = 16) -> None:
        self._block_tokens = block_tokens
        self._known: set[Chain] = set()

    def serve(self, prompt: Tokens, reply: Tokens) -> int:
        """Run one call; gives how many tokens of the prompt were found, always less than all of them."""
        chains = self._chains(prompt + reply)
        found = 0
        for chain in chains[: (len(prompt) - 1) // self._block_tokens]:
            if chain not in self._known:
                break
            found += self._block_tokens
        # The KV of the last token generated is never computed: no token follows it.
        self._known.update(chains[: (len(prompt) + max(0, len(reply) - 1)) // self._block_tokens])
        return found

    def _chains(self, tokens: Tokens) -> list[Chain]:
        chains, parent = [], root()
        for at in range(0, len(tokens) - self._block_tokens + 1, self._block_tokens):
            parent = extend(parent, tokens[at : at + self._block_tokens])
            chains.append(parent)
        return chains
