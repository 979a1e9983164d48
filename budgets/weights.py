"""What tokens of each kind count for in a limit of `weighted_tokens`.

Rule: whole thousandths of a token, so that a sum over calls is exact, and linear, so that what is taken on the way adds
up. A cached token never counts for more than one that is computed: which of the two a prompt's are is known only
afterwards, and what is reserved must be enough.
"""

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

WEIGHT_PARTS: Final = 1_000
"""Parts in a token."""
MOST: Final = 100 * WEIGHT_PARTS
Weight = Annotated[int, Field(ge=0, le=MOST)]


class Weights(BaseModel):
    """Thousandths of a token: of a prompt that is computed, of one from a prefix cache, and generated.

    A tenth for what was cached, as several price lists and gateways have it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefill: Weight = WEIGHT_PARTS
    cached: Weight = WEIGHT_PARTS // 10
    decode: Weight = WEIGHT_PARTS

    @model_validator(mode="after")
    def _sound(self) -> Self:
        """Raises `ValueError` for weights that count nothing, and where a cache would make a prompt dearer."""
        if not self.prefill and not self.decode:
            raise ValueError("these weights count nothing; give prefill or decode one above 0")
        if self.cached > self.prefill:
            raise ValueError("cached tokens cannot count for more than prefill tokens; lower cached or raise prefill")
        return self

    @property
    def told(self) -> dict[str, float]:
        """As people are told them: 1 is a token."""
        return {kind: parts / WEIGHT_PARTS for kind, parts in self.model_dump().items()}

    def of(self, prefill_tokens: int, cached_tokens: int, decode_tokens: int) -> int:
        """Parts that so many tokens of each kind count for."""
        return self.prefill * prefill_tokens + self.cached * cached_tokens + self.decode * decode_tokens


USUAL: Final = Weights()
