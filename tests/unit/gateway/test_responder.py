"""An answer is framed as HTTP demands, or the connection is closed."""

import pytest

from tests.unit.gateway.samples import responder

TEXT = ((b"content-type", b"text/plain"),)


def test_a_reply_has_a_length_and_keeps_the_connection() -> None:
    answer, line = responder()
    answer.reply(200, TEXT, b"abc")
    assert line.bytes == b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nabc"
    assert line.kept is True
    assert answer.finished


def test_a_reply_to_a_client_that_closes_says_so() -> None:
    answer, line = responder(keep=False)
    answer.reply(200, (), b"")
    assert b"connection: close\r\n" in line.bytes
    assert line.kept is False


def test_head_has_the_length_and_no_body() -> None:
    answer, line = responder(head_only=True)
    answer.reply(200, (), b"abc")
    assert line.bytes.endswith(b"content-length: 3\r\n\r\n")


def test_a_stream_is_chunked_and_ended() -> None:
    answer, line = responder()
    answer.start(200, TEXT)
    answer.write(b"a" * 18)
    answer.write(b"")  # an empty chunk would end the answer
    answer.finish()
    head, _, body = line.bytes.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body == b"12\r\n" + b"a" * 18 + b"\r\n0\r\n\r\n"
    assert line.kept is True


def test_a_stream_for_http_1_0_ends_with_the_connection() -> None:
    answer, line = responder(http10=True)
    answer.start(200, TEXT)
    answer.write(b"abc")
    answer.finish()
    assert line.bytes.endswith(b"connection: close\r\n\r\nabc")
    assert b"chunked" not in line.bytes
    assert line.kept is False


def test_a_client_of_http_1_0_that_keeps_its_connection_is_told_that_it_is_kept() -> None:
    answer, line = responder(http10=True)
    answer.reply(200, (), b"")
    assert b"connection: keep-alive\r\n" in line.bytes
    assert line.kept is True


def test_an_answer_that_is_the_last_one_says_so() -> None:
    answer, line = responder()
    answer.close_after()
    answer.reply(200, (), b"")
    assert b"connection: close\r\n" in line.bytes
    assert line.kept is False


def test_a_cut_stream_has_no_end() -> None:
    answer, line = responder()
    answer.start(200, TEXT)
    answer.cut()
    answer.finish()
    assert line.was_cut
    assert not line.bytes.endswith(b"0\r\n\r\n")
    assert line.kept is None


def test_a_finished_answer_is_not_cut() -> None:
    answer, line = responder()
    answer.reply(200, (), b"")
    answer.cut()
    assert not line.was_cut


def test_nothing_is_written_for_a_client_that_left_and_work_hears_of_it_once() -> None:
    answer, line = responder()
    heard: list[int] = []
    answer.on_gone = lambda: heard.append(1)
    answer.client_left()
    answer.client_left()
    answer.start(200, TEXT)
    answer.write(b"a")
    answer.finish()
    assert (line.sent, heard) == ([], [1])


def test_a_tee_hears_what_the_client_gets_and_nothing_more() -> None:
    heard: list[bytes] = []
    whole, _ = responder()
    whole.tee = heard.append
    whole.reply(200, TEXT, b"whole")
    streamed, line = responder()
    streamed.tee = heard.append
    streamed.start(200, TEXT)
    streamed.write(b"one")
    streamed.write(b"")
    streamed.client_left()
    streamed.write(b"two")
    assert heard == [b"whole", b"one"]
    assert b"one" in line.bytes


def test_a_client_that_leaves_after_the_end_disturbs_nobody() -> None:
    answer, _ = responder()
    heard: list[int] = []
    answer.on_gone = lambda: heard.append(1)
    answer.reply(200, (), b"")
    answer.client_left()
    assert heard == []


@pytest.mark.parametrize("status", [420, 499, 529, 599])
def test_a_status_without_a_registered_name_can_be_answered(status: int) -> None:
    answer, line = responder()
    answer.reply(status, (), b"")
    assert line.bytes.startswith(b"HTTP/1.1 %d " % status)
