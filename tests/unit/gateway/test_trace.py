"""Request ids are ours; trace headers are carried on unchanged."""

import uuid
from itertools import islice

from gateway.trace import carried, request_ids


def test_ids_are_fresh_uuids() -> None:
    ids = set(islice(request_ids(), 1_000))
    assert len(ids) == 1_000
    assert all(str(uuid.UUID(id)) == id for id in ids)


def test_trace_headers_are_carried_and_no_others() -> None:
    headers = {
        b"traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"authorization": b"Bearer secret",
        b"x-request-id": b"theirs",
        b"baggage": b"a=b",
    }
    assert carried(headers) == b"traceparent: " + headers[b"traceparent"] + b"\r\nbaggage: a=b\r\n"
    assert carried({}) == b""
