from foedus.protos.channel import CHUNK_BYTES
from foedus.protos.pace import FIRST_BYTES, Pace


class Line:
    """A clock that each chunk moves by its size over ``bytes_per_second``."""

    def __init__(self, bytes_per_second: float) -> None:
        self.seconds, self.rate = 0.0, bytes_per_second
        self.pace = Pace(monotonic=lambda: self.seconds)

    def send(self) -> int:
        size = self.pace.next_bytes()
        self.seconds += size / self.rate
        return size


def test_a_fast_line_gets_the_largest_chunks_after_a_few() -> None:
    line = Line(1e9)
    assert [line.send() for _ in range(6)] == [FIRST_BYTES << n for n in (0, 1, 2, 3, 4, 4)]
    assert FIRST_BYTES << 4 == CHUNK_BYTES


def test_a_slow_line_keeps_to_the_smallest() -> None:
    line = Line(64e3 / 8)
    assert {line.send() for _ in range(5)} == {FIRST_BYTES}


def test_a_line_that_becomes_slow_is_given_less_at_a_time() -> None:
    line = Line(1e9)
    for _ in range(6):
        line.send()
    line.rate = 0.6e6
    assert [line.send() for _ in range(4)] == [CHUNK_BYTES, CHUNK_BYTES >> 1, CHUNK_BYTES >> 2, CHUNK_BYTES >> 2]
