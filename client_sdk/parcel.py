"""An update on its way out, whatever form it leaves in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..privacy.secagg.signing import Signed
from ..protos.messages import Receipt, UploadHeader


@dataclass(frozen=True, slots=True)
class Parcel:
    """An update that is ready to be sent, or was sent: then ``receipt`` is the server's decision.

    Under masks ``words`` leave instead of the file.
    """

    header: UploadHeader
    path: Path
    seed: int
    receipt: Receipt | None = None
    words: memoryview | None = field(default=None, repr=False)

    def masked(self, words: memoryview, message: bytes) -> Parcel:
        """The same update as it leaves under masks; these are kept in memory alone, since they can be made again.

        Args:
            words: the masked update, as bytes.
            message: what the site has signed about them: their SHA-256.
        """
        header = UploadHeader(
            run=self.header.run,
            round=self.header.round,
            model_sha256=self.header.model_sha256,
            layout_sha256=self.header.layout_sha256,
            num_bytes=words.nbytes,
            sha256=Signed.from_bytes(message).body.hex(),
            num_examples=0,
            num_steps=0,
            masked=message,
        )
        return Parcel(header, self.path, self.seed, words=words)

    def pieces(self, offset: int, next_bytes: Callable[[], int]) -> Iterator[bytes | memoryview]:
        """What is to be sent from a byte on, in pieces of as many bytes as ``next_bytes`` says before each.

        Raises:
            OSError: the file cannot be read.
        """
        if self.words is not None:
            while piece := self.words[offset : offset + next_bytes()]:
                yield piece
                offset += len(piece)
            return
        with self.path.open("rb") as file:
            file.seek(offset)
            while data := file.read(next_bytes()):
                yield data
