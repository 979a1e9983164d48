"""The table of engines as a whole."""

from typing import get_args

from backends.engines import ENGINES
from backends.engines.kind import EngineKind


def test_every_kind_has_its_row() -> None:
    assert set(ENGINES) == set(get_args(EngineKind))
    assert all(engine.kind == kind for kind, engine in ENGINES.items())


def test_texts_are_lower_case_as_they_are_compared() -> None:
    for engine in ENGINES.values():
        texts = (*engine.busy_texts, *engine.overflow_texts)
        assert texts == tuple(text.lower() for text in texts)


def test_only_vllm_is_told_a_salt_and_transfer_params_together() -> None:
    assert "kv_transfer_params" in ENGINES["vllm"].understands
    assert [kind for kind in ENGINES if "kv_transfer_params" in ENGINES[kind].understands] == ["vllm"]
    assert [kind for kind in ENGINES if "cache_salt" in ENGINES[kind].understands] == ["vllm", "sglang"]
