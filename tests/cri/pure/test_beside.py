"""A future beside a CRI call ends with the call, by an answer or any error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors._cri.call import Call, beside
from actors._cri.errors import CriError


class Rpc:
    """A gRPC future that has ended. As in gRPC, an exception of a callback ends nothing."""

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        try:
            callback(self)
        except Exception as error:
            self.logged = error

    def result(self, _: float) -> bytes:
        return b"answer"


def read_fails(error: Exception) -> Callable[[bytes], str]:
    def read(_: bytes) -> str:
        raise error

    return read


@pytest.mark.parametrize(
    "error", [CriError.of("Unavailable", "it is gone", "ExecSync"), ValueError("an answer that cannot be read")]
)
def test_error_of_the_call_ends_the_future_beside_it(error: Exception) -> None:
    answered = beside(Call("ExecSync", Rpc, read_fails(error)))
    assert answered.done()
    with pytest.raises(type(error), match=str(error)):
        answered.result(0)


def test_value_of_the_call_is_that_of_the_future_beside_it() -> None:
    assert beside(Call("ExecSync", Rpc, bytes.decode)).result(0) == "answer"
