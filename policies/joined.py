"""What two turns remember together that ran side by side in one branch of a session.

Rule: nothing that either has sent is forgotten, and nothing is kept twice.
"""

from msgspec.structs import replace

from policies.memory import Cut, InForce, Memory, Recorded


def joined(ours: Memory, theirs: Memory) -> Memory:
    """Both; where they differ about the same message or setting, ours."""
    edits = _both(ours.enforced, theirs.enforced), _both(ours.shadow, theirs.shadow)
    return Memory(*edits, ours.version, ours.seen if len(ours.seen) >= len(theirs.seen) else theirs.seen)


def _both(ours: InForce, theirs: InForce) -> InForce:
    if ours == InForce() or theirs == InForce():
        return theirs if ours == InForce() else ours
    trims = {(trim.digest, trim.form == "same"): trim for trim in (*theirs.trims, *ours.trims)}
    cut, cleared = _further(ours.cut, theirs.cut), _further(ours.cleared, theirs.cleared)
    summary, ahead = _later(ours.summary, theirs.summary), _later(ours.ahead, theirs.ahead)
    return replace(ours, trims=tuple(trims.values()), cut=cut, cleared=cleared, summary=summary, ahead=ahead)


def _later(ours: Recorded | None, theirs: Recorded | None) -> Recorded | None:
    """The record that stands for more; of equal ones ours."""
    if ours is None or theirs is None:
        return ours or theirs
    return theirs if theirs.stop > ours.stop else ours


def _further(ours: Cut | None, theirs: Cut | None) -> Cut | None:
    """A window that has moved never moves back."""
    if ours is None or theirs is None:
        return ours or theirs
    return theirs if theirs.at > ours.at else ours
