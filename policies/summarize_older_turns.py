"""Older turns replaced by a record of them: written by a model ahead of need, or put together of facts without one.

Rule: what was sent changes only in a step: when the high water is passed, when nothing of the prompt is warm, or when
another policy takes a step anyway. A record is used only if it is shorter than what it replaces, and only if the step
goes far enough not to be taken again at once. Without a record the next policy of the tier decides.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from policies import record
from policies.covering import Cover
from policies.draft import Draft
from policies.edit import DropMessages, Edit
from policies.extract_facts import extract
from policies.keep_recent_turns import Water
from policies.keeping import NOTHING, Keeping, KeepSeconds
from policies.outcome import edits
from policies.pricing import Pricing, pays
from policies.summary import Summary, Wanted, left_out, name_of, summarized
from policies.trim_search import Count

LOOKED_UP = 16
"""Records of so many stops, the latest ones, are looked for where a conversation is new to us."""
CHARACTERS_A_TOKEN = 4
TRIES = 5
SLACK = 1.5
"""A record may seem so much longer than when it was made, for tokens are told by a measure that is learned."""


class _Stepping(msgspec.Struct, frozen=True):
    """What a step is judged by; `cold`: nothing of the prompt is warm, so it costs nothing."""

    water: Water
    pricing: Pricing | None
    count: Count
    cold: bool
    keeping: Keeping


class SummarizeOlderTurns(BaseModel):
    """Above `high_water_tokens`, messages are replaced by a record of at most `max_tokens`, down to `low_water_tokens`.

    The record is asked for from `summarize_at_tokens` on, in the background, of `model` in `pool` (None: the call's
    own); with `deadline_seconds` the call that needs it waits so long for it. With `by: facts`, and in shadow, no model
    is asked: the record is put together of facts. After `gap_seconds` without a call nothing is taken to be warm. With
    `keep_original_seconds` what a record stands for is kept so long after it was last sent, and the record names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["summarize_older_turns"] = "summarize_older_turns"
    mode: Literal["enforce", "shadow"] = "enforce"
    by: Literal["model", "facts"] = "model"
    high_water_tokens: PositiveInt | None = None
    low_water_tokens: PositiveInt | None = None
    summarize_at_tokens: PositiveInt | None = None
    idle_at_tokens: PositiveInt | None = None
    max_tokens: Annotated[int, Field(ge=128)] = 1024
    model: str | None = None
    pool: str | None = None
    deadline_seconds: PositiveFloat | None = None
    timeout_seconds: PositiveFloat = 120.0
    keep_seconds: PositiveFloat = 86_400.0
    gap_seconds: PositiveFloat = 3_600.0
    keep_original_seconds: KeepSeconds = 0.0

    @model_validator(mode="after")
    def _marks_ascend(self) -> Self:
        marks = (self.low_water_tokens, self.summarize_at_tokens, self.high_water_tokens)
        given = [mark for mark in marks if mark is not None]
        if given != sorted(set(given)):
            raise ValueError("low_water_tokens, summarize_at_tokens and high_water_tokens must ascend")
        if self.low_water_tokens is not None and self.low_water_tokens <= self.max_tokens:
            raise ValueError("low_water_tokens must be above max_tokens: the record is part of what is sent")
        return self

    @model_validator(mode="after")
    def _facts_need_no_model(self) -> Self:
        asked = ("model", "pool", "deadline_seconds", "summarize_at_tokens", "idle_at_tokens")
        if self.by == "facts" and (given := [name for name in asked if getattr(self, name) is not None]):
            raise ValueError(f"{given[0]} has no effect with `by: facts`, which asks no model")
        return self

    def revise(
        self,
        draft: Draft,
        limit_tokens: int | None,
        pricing: Pricing | None,
        count: Count,
        records: Mapping[bytes, str],
        idle_seconds: float = 0.0,
        keeping: Keeping = NOTHING,
    ) -> Draft:
        """`draft` with a record in place of messages, or with the record `wanted` that it would take.

        `records` are those there are by name; `limit_tokens` is the cap that follows, if any.
        """
        water, total = self._water(limit_tokens), draft.total_tokens
        if water is None:
            return draft
        cold = draft.open or not draft.known or idle_seconds >= self.gap_seconds
        if total <= self._least(water, cold=cold):
            return draft
        kept = keeping if self.keep_original_seconds else NOTHING
        stepping = _Stepping(water, None if cold else pricing, count, cold, kept)
        if self._is_of_facts:
            return self._with_facts(draft, stepping)
        return self._with_record(draft, stepping, records)

    def may_act(self, total_bytes: int, limit_tokens: int | None) -> bool:
        """Whether a prompt of this size in bytes could be summarised (a token is at least a byte)."""
        water = self._water(limit_tokens)
        return water is not None and total_bytes > min(self._at(water), self.idle_at_tokens or total_bytes)

    def lowered(self, limit_tokens: int) -> Self:
        """The same with its marks below a limit, and in the same proportion to one another."""
        high = min(limit_tokens, self.high_water_tokens or limit_tokens)
        low = max(2, min(self.low_water_tokens or high, high // 2))
        marks = {"high_water_tokens": high, "low_water_tokens": low, "summarize_at_tokens": None}
        return self.model_copy(update=marks | {"max_tokens": min(self.max_tokens, max(1, low // 2))})

    def resting(self, draft: Draft) -> Wanted | None:
        """The record that a session should leave when it is forgotten, of all but its last turn."""
        if self.idle_at_tokens is None or draft.total_tokens <= self.idle_at_tokens:
            return None
        covers = [cover for cover in draft.frame.covers if cover.stop > draft.summarized]
        if not covers:
            return None
        return self._wanted(draft, covers[-1], urgent=False)

    def _water(self, limit_tokens: int | None) -> Water | None:
        high = self.high_water_tokens or limit_tokens
        return None if high is None else Water(high, self.low_water_tokens or high // 2, limit_tokens)

    def _at(self, water: Water) -> int:
        """From how many tokens on a record is asked for."""
        return self.summarize_at_tokens or max(water.low, water.high * 4 // 5)

    @property
    def _is_of_facts(self) -> bool:
        return self.by == "facts" or self.mode == "shadow"

    def _least(self, water: Water, *, cold: bool) -> int:
        """Up to how many tokens nothing is done: what is cold may be shortened from the lowest mark on."""
        if self._is_of_facts:
            return self._at(water) if cold else min(water.high, water.limit or water.high)
        return min(self._at(water), self.idle_at_tokens or self._at(water)) if cold else self._at(water)

    def _with_facts(self, draft: Draft, stepping: "_Stepping") -> Draft:
        """The last stop is tried too: a nearer one may bring originals back that pointers stood for."""
        chosen = self._chosen(draft, stepping.water)
        for cover in dict.fromkeys((chosen, draft.frame.covers[-1])) if chosen is not None else ():
            summary = self._of_facts(draft, cover, stepping)
            if summary is not None and (stepped := self._stepped(draft, summary, stepping)) is not draft:
                return stepped
        return draft

    def _of_facts(self, draft: Draft, cover: Cover, stepping: "_Stepping") -> Summary | None:
        found = extract([draft.messages[at] for at in left_out(cover, draft.frame.head)], draft.frame.read)
        room = self.max_tokens * CHARACTERS_A_TOKEN
        for _ in range(TRIES):
            text = record.harmless(found.written(room))
            if not text or not room:
                return None
            key = name_of(draft.frame.cover_digests[cover.stop], f"facts {room}")
            summary = summarized(draft.frame, cover, text, key, stepping.count, room, stepping.keeping)
            if summary.tokens <= self.max_tokens:
                return summary
            room = room * self.max_tokens * 9 // (summary.tokens * 10)
        return None

    def _with_record(self, draft: Draft, stepping: "_Stepping", records: Mapping[bytes, str]) -> Draft:
        water, total = stepping.water, draft.total_tokens
        urgent = water.passed(total)
        if (urgent or stepping.cold) and (stepped := self._from(draft, stepping, records)) is not draft:
            return stepped
        asked = draft.ahead if draft.ahead and draft.ahead.key == self.name(draft, draft.ahead.cover) else None
        ready = asked is not None and asked.key in records
        if ready and not urgent:
            return draft
        chosen = asked.cover if asked is not None and not ready else self._chosen(draft, water)
        if chosen is None or chosen.stop <= draft.cut:
            return draft
        return draft.wanting(self._wanted(draft, chosen, urgent=urgent, make=total > self._at(water)))

    def _from(self, draft: Draft, stepping: "_Stepping", records: Mapping[bytes, str]) -> Draft:
        """With the record that stands for most, of those that go far enough; the same draft if none does."""
        for cover in reversed(draft.frame.covers) if records else ():
            if cover.stop <= draft.summarized:
                break
            if (text := records.get(key := self.name(draft, cover))) is not None:
                summary = summarized(draft.frame, cover, text, key, stepping.count, keeping=stepping.keeping)
                if (stepped := self._stepped(draft, summary, stepping)) is not draft:
                    return stepped
        return draft

    def _chosen(self, draft: Draft, water: Water) -> Cover | None:
        """The nearest stop that brings the prompt down to the low water, else the last one."""
        covers = [cover for cover in draft.frame.covers if cover.stop > draft.summarized]
        goal = draft.total_tokens - water.low + self.max_tokens
        freed, at = draft.summary.tokens if draft.summary else 0, 0
        for cover in covers:
            freed += sum(draft.tokens(place) for place in range(at, cover.stop) if _goes(draft, place))
            at = cover.stop
            bridge = draft.tokens(cover.bridge) if cover.bridge is not None else 0
            if freed - bridge >= goal:
                return cover
        return covers[-1] if covers else None

    def _stepped(self, draft: Draft, summary: Summary, stepping: "_Stepping") -> Draft:
        """`draft` with the record, and with all that waits for a step; or the same where it does not go far enough."""
        total, water = draft.total_tokens, stepping.water
        moved = draft.with_summary(summary)
        if summary.tokens > self.max_tokens * SLACK:
            return draft
        freed = total - moved.total_tokens
        forced = water.refused(total)
        far = total - freed <= self._at(water) or freed >= water.high - water.low or forced
        if freed <= 0 or not far or not (forced or pays(draft, moved, stepping.pricing)):
            return draft
        return moved.stepped(step="limit" if forced else "cold" if stepping.cold else "mark")

    def _wanted(self, draft: Draft, cover: Cover, *, urgent: bool, make: bool = True) -> Wanted:
        covers = [other for other in draft.frame.covers if other.stop > draft.summarized][-LOOKED_UP:]
        return Wanted(
            cover,
            self.name(draft, cover),
            urgent=urgent,
            make=make,
            replaced_tokens=sum(draft.messages[at].tokens for at in left_out(cover, draft.frame.head)),
            others=() if draft.known else tuple(self.name(draft, other) for other in reversed(covers)),
            before=draft.summary.key if draft.summary else b"",
            edits=tuple(edit for edit in edits(draft) if _place(edit) < cover.stop),
        )

    def name(self, draft: Draft, cover: Cover) -> bytes:
        """The name of the record of what `cover` covers, as this policy has it made."""
        return name_of(draft.frame.cover_digests[cover.stop], f"{self.model or ''}|{self.max_tokens}")


def _place(edit: Edit) -> int:
    return edit.start if isinstance(edit, DropMessages) else edit.at


def _goes(draft: Draft, at: int) -> bool:
    return draft.keeps(at) and at not in draft.frame.head
