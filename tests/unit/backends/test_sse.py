"""The scanner, piece by piece: what it keeps, what it removes, what it calls the end."""

import json

import pytest

from backends.sse import Scanner, Usage

ROLE = b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
TOKEN = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
STOP = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}]}\n\n'
USAGE = (
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":53,"total_tokens":65,"completion_tokens":12,'
    b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def token(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c", "choices": [choice], **more}, separators=(",", ":")).encode() + b"\n\n"


def scanned(*pieces: bytes, strip_usage: bool = True, choices: int = 1) -> tuple[Scanner, bytes]:
    scanner = Scanner(strip_usage=strip_usage, choices=choices)
    return scanner, b"".join([scanner.feed(piece) for piece in pieces])


def test_the_usage_frame_alone_is_removed_and_kept_as_a_fact() -> None:
    scanner, out = scanned(ROLE, TOKEN, STOP, USAGE, DONE)
    assert out == ROLE + TOKEN + STOP + DONE
    assert scanner.usage == Usage(prompt_tokens=53, cached_tokens=0, completion_tokens=12)
    assert (scanner.frames, scanner.finish_reasons, scanner.finish()) == (5, {0: "stop"}, "complete")


def test_a_client_that_asked_for_usage_gets_every_byte() -> None:
    _, out = scanned(ROLE, TOKEN, STOP, USAGE, DONE, strip_usage=False)
    assert out == ROLE + TOKEN + STOP + USAGE + DONE


def test_a_piece_from_which_nothing_is_removed_is_passed_on_as_the_same_object() -> None:
    scanner = Scanner(strip_usage=True)
    for piece in (ROLE, TOKEN, bytes(bytearray(TOKEN)), token("other", more=1), STOP, DONE, TOKEN * 3):
        assert scanner.feed(piece) is piece


def test_first_content_is_the_first_piece_that_is_not_empty() -> None:
    scanner = Scanner(strip_usage=True)
    scanner.feed(ROLE)
    assert not scanner.first_content
    scanner.feed(TOKEN)
    assert scanner.first_content


@pytest.mark.parametrize(
    "choice",
    [
        {"delta": {"reasoning": "hm"}},
        {"delta": {"reasoning_content": "hm"}},
        {"delta": {"content": None, "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}},
        {"text": "plain completion"},
    ],
)
def test_reasoning_tool_calls_and_completion_text_are_content(choice: dict[str, object]) -> None:
    scanner, _ = scanned(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
    assert scanner.first_content


def test_text_that_talks_of_usage_and_errors_is_text() -> None:
    talk = token('{"error":{"message":"x"},"usage":{"prompt_tokens":9},"choices":[],"finish_reason":"stop"} [DONE]')
    scanner, out = scanned(TOKEN, talk, talk[:50], talk[50:])
    assert out == TOKEN + talk + talk
    assert (scanner.usage, scanner.error, scanner.done, scanner.finish_reasons) == (None, None, False, {})


def test_usage_on_every_frame_ends_at_the_last_and_keeps_what_the_last_leaves_out() -> None:
    running = [token("w", usage={"prompt_tokens": 7, "completion_tokens": n}) for n in (1, 2)]
    cached = token(
        "w", usage={"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    )
    scanner, out = scanned(cached, *running, token("w", usage=None))
    assert scanner.usage == Usage(7, 4, 2)
    assert out.count(b'"usage":{') == 3  # content frames stay, whatever they carry


def test_zero_is_a_count_and_absent_is_unknown() -> None:
    scanner, _ = scanned(TOKEN, b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}\n\n')
    assert scanner.usage == Usage(5, None, 0)


@pytest.mark.parametrize("usage", [{"prompt_tokens": "5"}, {"prompt_tokens": -1}, {"prompt_tokens": True}, {}])
def test_what_is_no_count_is_no_usage(usage: dict[str, object]) -> None:
    scanner, _ = scanned(TOKEN, token("", usage=usage))
    assert scanner.usage is None


def test_an_end_without_done_is_complete_after_a_finish_reason_and_truncated_before() -> None:
    assert scanned(ROLE, TOKEN, STOP)[0].finish() == "complete"
    assert scanned(ROLE, TOKEN)[0].finish() == "truncated"
    assert scanned()[0].finish() == "truncated"


def test_every_choice_must_have_finished() -> None:
    other = STOP.replace(b'"index":0', b'"index":1')
    assert scanned(STOP, choices=2)[0].finish() == "truncated"
    assert scanned(STOP, other, choices=2)[0].finish() == "complete"


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b'{"error":{"message":"m","code":500}}', {"message": "m", "code": 500}),
        (b'{"error":"Request failed","error_type":"generation"}', {"message": "Request failed", "type": "generation"}),
        (b'{"object":"error","message":"m","code":400}', {"object": "error", "message": "m", "code": 400}),
    ],
)
def test_error_frames_of_all_engines_pass_and_win_over_done(frame: bytes, error: dict[str, object]) -> None:
    piece = b"data: " + frame + b"\n\n"
    scanner, out = scanned(TOKEN, piece, DONE)
    assert out == TOKEN + piece + DONE
    assert (scanner.error, scanner.finish()) == (error, "error")


def test_a_frame_with_usage_and_an_error_stays() -> None:
    piece = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0},"error":{"message":"m"}}\n\n'
    assert scanned(TOKEN, piece)[1] == TOKEN + piece


def test_tgi_frames_end_with_the_generated_text() -> None:
    first = b'data: {"index":1,"token":{"id":5,"text":"a","special":false},"generated_text":null,"details":null}\n\n'
    last = (
        b'data:{"index":2,"token":{"id":2,"text":"</s>","special":true},"generated_text":"a",'
        b'"details":{"finish_reason":"eos_token","generated_tokens":2,"input_length":9}}\n\n'
    )
    scanner, out = scanned(first, first, last)
    assert out == first + first + last
    assert (scanner.first_content, scanner.finish(), scanner.finish_reasons) == (True, "complete", {0: "eos_token"})
    assert scanner.usage == Usage(9, None, 2)


def test_comments_pass_and_are_no_frames() -> None:
    scanner, out = scanned(b": keep-alive\n\n", TOKEN, b": keep-alive\n\n")
    assert out == b": keep-alive\n\n" + TOKEN + b": keep-alive\n\n"
    assert scanner.frames == 1


def test_bytes_that_are_no_utf8_pass_and_the_keys_around_them_count() -> None:
    piece = STOP.replace(b'"."', b'"\xff\xfe"')
    scanner, out = scanned(ROLE, piece)
    assert out == ROLE + piece
    assert (scanner.first_content, scanner.finish_reasons) == (True, {0: "stop"})


def test_frames_that_are_no_json_pass() -> None:
    pieces = (b'data: {"error": oh\n\n', b"data: [1,2]\n\n", b'data: "usage"\n\n', b"data: " + b"[" * 100_000 + b"\n\n")
    scanner, out = scanned(*pieces)
    assert out == b"".join(pieces)
    assert (scanner.error, scanner.frames) == (None, 4)


def test_a_frame_of_a_megabyte_in_small_pieces() -> None:
    frame = token("x" * 1_000_000)
    scanner = Scanner(strip_usage=True)
    out = [scanner.feed(frame[at : at + 1000]) for at in range(0, len(frame), 1000)]
    assert b"".join(out) == frame
    assert len(b"".join(out[:100])) > 60_000  # not held back to its end
    assert scanner.frames == 1


def test_half_a_usage_frame_is_held_and_then_removed() -> None:
    scanner = Scanner(strip_usage=True)
    scanner.feed(TOKEN)
    assert scanner.feed(USAGE[:60]) == b""
    assert scanner.feed(USAGE[60:] + DONE) == DONE


def test_a_usage_frame_without_its_blank_line_is_removed_at_the_end() -> None:
    scanner, out = scanned(TOKEN, STOP, USAGE[:-2])
    assert (out, scanner.finish(), scanner.tail) == (TOKEN + STOP, "complete", b"")


def test_a_done_without_its_blank_line_is_handed_over_at_the_end() -> None:
    scanner, out = scanned(TOKEN, b"data: [DONE]")
    assert (out, scanner.finish(), scanner.tail) == (TOKEN, "complete", b"data: [DONE]")


def test_the_line_feed_of_a_removed_frame_goes_with_it() -> None:
    crlf = USAGE.replace(b"\n", b"\r\n")
    assert scanned(TOKEN, crlf[:-1], crlf[-1:] + DONE)[1] == TOKEN + DONE
    assert scanned(TOKEN, TOKEN[:-2] + b"\r\n\r", b"\n" + DONE)[1] == TOKEN + TOKEN[:-2] + b"\r\n\r\n" + DONE


@pytest.mark.parametrize("strip_usage", [True, False])
def test_at_border_tells_whether_a_frame_of_ours_may_follow(strip_usage: bool) -> None:
    scanner = Scanner(strip_usage=strip_usage)
    assert scanner.at_border
    scanner.feed(TOKEN[:20])
    assert scanner.at_border  # half a frame is held back
    scanner.feed(TOKEN[20:])
    assert scanner.at_border
    scanner.feed(b"data: " + b"x" * 100_000)
    assert not scanner.at_border


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_one_object_over_several_lines_with_any_line_end(end: bytes) -> None:
    lines = [
        b"event: usage",
        b'data: {"choices":[],',
        b'data: "usage":{"prompt_tokens":3,"completion_tokens":1}}',
        b"",
        b"",
    ]
    scanner, out = scanned(TOKEN, end.join(lines), DONE)
    assert (out, scanner.usage, scanner.frames) == (TOKEN + DONE, Usage(3, None, 1), 3)


@pytest.mark.parametrize(
    ("piece", "frames", "removed"),
    [
        (TOKEN + USAGE + TOKEN, 3, USAGE),
        (TOKEN + b": keep-alive\n\n", 1, b""),
        (TOKEN + b"\n\n", 1, b""),
        (TOKEN[:-2] + b"\r\n\r\n" + TOKEN, 2, b""),
        (b"data: \n" + TOKEN + TOKEN, 2, b""),
    ],
)
def test_a_piece_of_several_frames_is_taken_apart_however_calm_the_stream(
    piece: bytes, frames: int, removed: bytes
) -> None:
    scanner, _ = scanned(TOKEN, TOKEN, token("learned"))
    before = scanner.frames
    assert scanner.feed(piece) == piece.replace(removed, b"")
    assert scanner.frames - before == frames


def test_a_stray_blank_line_before_the_usage_frame_goes_with_it_in_one_piece_or_two() -> None:
    assert scanned(TOKEN, TOKEN + b"\n", USAGE + DONE)[1] == scanned(TOKEN, TOKEN + b"\n" + USAGE + DONE)[1]


TEXT = b'data: {"id":"c","choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'


@pytest.mark.parametrize(
    ("frames", "choices", "tokens"),
    [
        ((ROLE, TOKEN, TOKEN, STOP, DONE), 1, 3),
        ((ROLE, ROLE, TOKEN, TOKEN, TOKEN, TOKEN), 2, 4),
        ((TEXT, TEXT, DONE), 1, 2),
        ((TOKEN, TOKEN), 1, 2),
        ((ROLE,), 1, 0),
        ((ROLE, ROLE, ROLE), 1, 2),
        ((DONE,), 1, 0),
        ((), 1, 0),
    ],
)
def test_a_frame_is_a_token_but_for_those_that_open_a_choice(
    frames: tuple[bytes, ...], choices: int, tokens: int
) -> None:
    assert scanned(*frames, choices=choices)[0].tokens == tokens


def test_a_count_on_the_way_of_a_stream_that_nothing_opens_is_the_count() -> None:
    told = TEXT.replace(b"]}\n", b'],"usage":{"prompt_tokens":5,"completion_tokens":4}}\n')
    assert scanned(TEXT, told)[0].tokens == 4


def test_frames_after_the_last_usage_are_untold_until_every_choice_has_ended() -> None:
    early = token("", usage={"prompt_tokens": 5, "completion_tokens": 0})
    scanner, _ = scanned(early, TOKEN, TOKEN, TOKEN)
    assert scanner.untold == 3
    scanner.feed(token("four", usage={"prompt_tokens": 5, "completion_tokens": 4}))
    assert scanner.untold == 0
    scanner.feed(TOKEN + STOP)
    assert scanner.untold == 0, "what an engine tells of a choice that has ended is all"
    assert scanned(TOKEN, TOKEN)[0].untold == 0, "nothing was told"
    assert scanned(early, TOKEN, DONE)[0].untold == 0


def test_usage_told_on_the_way_of_one_choice_does_not_hold_the_others() -> None:
    each = [token("word", usage={"prompt_tokens": 5, "completion_tokens": at}) for at in (1, 1, 2, 2, 3, 3)]
    scanner, _ = scanned(ROLE, *each, choices=2)
    assert scanner.usage is not None
    assert scanner.usage.completion_tokens + scanner.untold == 6


def test_an_engine_that_counts_on_the_way_is_believed_and_its_end_is_no_token() -> None:
    several = [token("two words", usage={"prompt_tokens": 5, "completion_tokens": at * 4}) for at in (1, 2, 3)]
    scanner, _ = scanned(ROLE, *several)
    assert scanner.frames == 13, "as if each token had come in a frame of its own"
    scanner.feed(token("less", usage={"prompt_tokens": 5, "completion_tokens": 2}))
    assert scanner.frames == 14
    scanner.feed(STOP)
    scanner.feed(USAGE)
    assert scanner.frames == 16


def test_an_error_is_no_token() -> None:
    error = b'data: {"error":{"message":"m","code":500}}\n\n'
    counted = Scanner(strip_usage=False)
    for piece in (token("a"), token("b"), error, b"data: [DONE]\n\n"):
        counted.feed(piece)
    assert (counted.finish(), counted.tokens) == ("error", 2)
    told = Scanner(strip_usage=False)
    usage = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    for piece in (usage, token("b"), error):
        told.feed(piece)
    assert (told.finish(), told.untold) == ("error", 1)
    assert Scanner(strip_usage=False).tokens == 0
