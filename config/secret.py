"""References to secrets: `env:NAME`, never the secret itself.

Rule: no error repeats what stands in a secret's place.
"""

import re
from collections.abc import Mapping

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from config.section import Section

SECRET = "secret"
"""Type of the errors whose input must not be shown."""


class EnvSecret(Section):
    """The environment variable that holds a secret."""

    variable: str

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        match = re.fullmatch(r"env:([A-Za-z_][A-Za-z0-9_]*)", value) if isinstance(value, str) else None
        if match is None:
            raise PydanticCustomError(
                SECRET,
                "a secret does not belong in the file; write env:NAME, the environment variable that holds it",
            )
        return {"variable": match[1]}

    def read(self, environ: Mapping[str, str]) -> str | None:
        """The secret; None when the variable is not set or empty."""
        return environ.get(self.variable) or None
