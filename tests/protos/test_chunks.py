"""Encoded chunks are what the schema says."""

from __future__ import annotations

import pytest
from foedus.protos.chunks import Piece, decode_chunk, decode_upload, encode_chunk, encode_upload_chunk, upload_bytes
from foedus.protos.v1 import common_pb2, transfer_pb2
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

OFFSETS = st.integers(0, 2**64 - 1)


@given(OFFSETS, st.binary(max_size=300))
@example(0, b"")
@example(127, b"x" * 128)
@example(128, b"x" * 127)
def test_a_chunk_is_byte_for_byte_the_message(offset: int, data: bytes) -> None:
    assert encode_chunk(offset, data) == common_pb2.Chunk(offset=offset, data=data).SerializeToString()


@given(OFFSETS, st.binary(max_size=300))
@example(0, b"")
def test_an_upload_chunk_is_byte_for_byte_the_message(offset: int, data: bytes) -> None:
    message = transfer_pb2.UploadMessage(chunk=common_pb2.Chunk(offset=offset, data=data))
    assert encode_upload_chunk(offset, data) == message.SerializeToString()
    assert upload_bytes(message) == upload_bytes(message.SerializeToString())


def test_a_megabyte_too() -> None:
    data = bytes(range(256)) * 4096
    chunk = transfer_pb2.UploadMessage.FromString(encode_upload_chunk(5 << 20, data)).chunk
    assert (chunk.offset, chunk.data) == (5 << 20, data)


@given(OFFSETS, st.binary(max_size=300))
@example(2**63, b"x")
@example(0, b"")
def test_what_was_encoded_is_read_back_as_a_view(offset: int, data: bytes) -> None:
    piece = decode_chunk(encode_chunk(offset, data))
    assert (piece.offset, bytes(piece.data)) == (offset, data)
    piece = decode_upload(encode_upload_chunk(offset, data))
    assert isinstance(piece, Piece)
    assert (piece.offset, bytes(piece.data)) == (offset, data)


@given(st.binary(max_size=64))
@example(b"\x12\x03\x08\x05\x12")
@example(b"\x12\x05\x12\x01x\x08\x07")
@example(b"\x08")
def test_any_bytes_mean_what_protobuf_says(message: bytes) -> None:
    for decode, kind in ((decode_chunk, common_pb2.Chunk), (decode_upload, transfer_pb2.UploadMessage)):
        try:
            expected = kind.FromString(message)
        except DecodeError:
            with pytest.raises(DecodeError):
                decode(message)
            continue
        found = decode(message)
        chunk = expected.chunk if kind is transfer_pb2.UploadMessage else expected
        if isinstance(found, Piece):
            assert (found.offset, bytes(found.data)) == (chunk.offset, chunk.data)
        else:
            assert found == expected
