"""`python -m bench.condense TRACES`: makes `bench/traces/*.jsonl` out of the published traces in their own formats.

Rule: what was said is taken over to the character; all else (timestamps, prices, states of a shell) is left out. One
line is one session in the form of OpenAI's chat messages; a request was made before every assistant message.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("traces")
TAU_SESSIONS: Final = 6
"""The longest of the airline's conversations; the others are much like them, only shorter."""

Messages = list[dict[str, Any]]


def main() -> None:
    """Read the folder that the first argument names and write the three files."""
    traces = Path(sys.argv[1])
    _write("mini_swe", _mini_swe(traces / "lmcache_agent" / "miniswe"))
    _write("swe_smith", _swe_smith(traces / "swe_smith"))
    _write("tau_bench", _tau_bench(traces / "tau_bench" / "gpt-4o-airline_first50.json"))


def _write(name: str, sessions: Iterator[tuple[str, Messages]]) -> None:
    lines = [json.dumps({"name": session, "messages": messages}, ensure_ascii=False) for session, messages in sessions]
    FOLDER.joinpath(f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _mini_swe(folder: Path) -> Iterator[tuple[str, Messages]]:
    """Each row holds all the user's side so far as one text, and one reply; rows are not always in order."""
    for path in sorted(folder.glob("*.jsonl")):
        rows = sorted(map(json.loads, path.read_text("utf-8").splitlines()), key=lambda row: len(row["input"]))
        messages: Messages = []
        said = ""
        for row in rows:
            if not row["input"].startswith(said):
                raise ValueError(f"{path.name}: a prompt does not go on from the one before")
            messages.append({"role": "user", "content": row["input"][len(said) :].strip()})
            messages.append({"role": "assistant", "content": row["output"]})
            said = row["input"]
        yield path.stem[:8], messages


def _swe_smith(folder: Path) -> Iterator[tuple[str, Messages]]:
    for path in sorted(folder.glob("*.traj")):
        history = json.loads(path.read_text("utf-8"))["history"]
        yield path.stem.split(".")[-1], [_neutral(message) for message in history]


def _tau_bench(path: Path) -> Iterator[tuple[str, Messages]]:
    talks = sorted(json.loads(path.read_text("utf-8")), key=lambda talk: -len(json.dumps(talk["traj"])))
    for talk in talks[:TAU_SESSIONS]:
        yield f"airline-{talk['task_id']}", [_neutral(message) for message in talk["traj"]]


def _neutral(message: dict[str, Any]) -> dict[str, Any]:
    """Only the fields of the chat API; a result names the call that it answers."""
    neutral: dict[str, Any] = {"role": message["role"], "content": _text(message["content"])}
    if calls := message.get("tool_calls"):
        neutral["tool_calls"] = [_call(call) for call in calls]
    if message["role"] == "tool":
        neutral["tool_call_id"] = message.get("tool_call_id") or message["tool_call_ids"][0]
    return neutral


def _text(content: str | Sequence[dict[str, str]] | None) -> str:
    return "".join(part["text"] for part in content) if isinstance(content, list) else str(content or "")


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = {name: call["function"][name] for name in ("name", "arguments")}
    return {"id": call["id"], "type": "function", "function": function}


if __name__ == "__main__":
    main()
