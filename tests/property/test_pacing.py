"""However a stream is cut and its client pauses, a pace changes no byte and holds the engine back while one waits."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gateway.pacing import Pace, PacedResponder, Schedule
from tests.unit.gateway.samples import responder

PIECES = st.lists(
    st.sampled_from(
        [b"data: x\n\n", b"data: y\r\n\r\n", b": hello\n\n", b"data: z\r\r", b"data: be", b"gun\n", b"\n", b""]
    ),
    max_size=12,
)
STEPS = st.lists(st.one_of(PIECES.map(b"".join), st.sampled_from(["pause", "resume"])), max_size=12)


class Engine:
    """A source that keeps whether it is held back."""

    held = False

    def pause(self) -> None:
        self.held = True

    def resume(self) -> None:
        self.held = False


@given(steps=STEPS)
def test_nothing_is_lost_changed_or_let_through_too_early(steps: list[bytes | str]) -> None:
    async def run() -> None:
        inner, line = responder(http10=True)
        paced = PacedResponder(inner, Pace(Schedule(), 50_000), asyncio.get_running_loop().time)
        engine = Engine()
        paced.source = engine
        paced.start(200, ())
        line.sent.clear()
        written = b""
        for step in steps:
            if isinstance(step, bytes):
                written += step
                paced.write(step)
            elif step == "pause":
                paced.pause()
            else:
                paced.resume()
            assert engine.held or b"".join(line.sent) == written
        paced.resume()
        await paced.drained()
        assert b"".join(line.sent) == written
        assert not engine.held

    asyncio.run(run())
