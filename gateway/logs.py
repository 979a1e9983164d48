"""JSON lines on standard error: what happened, with ids and numbers.

Rule: only the fields named at the call reach a line. No prompt, no key, no header and no body is ever passed here, and
a traceback shows places in the code, not values.
"""

import logging
import sys
import traceback
from typing import Final

import msgspec

from gateway.clock import wall

LOGGER: Final = logging.getLogger("kvgate")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and the fields given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": round(wall(), 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        line |= fields if isinstance(fields, dict) else {}
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure(level: str = "info") -> None:
    """Send kvgate's log to standard error at `level`, and nothing of it anywhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    LOGGER.handlers = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False


def log(level: int, event: str, **fields: object) -> None:
    """One line, if the level is on."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields})


def log_defect(event: str, error: BaseException, **fields: object) -> None:
    """A failure nobody expected: the kind of error and where it arose, never its text, which may hold a prompt."""
    places = [
        f"{frame.filename.rsplit('/', 2)[-1]}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
    ]
    log(logging.ERROR, event, error=type(error).__name__, at=places[-6:], **fields)
