"""The lines of `supervisor why`."""

from proto.waits.chain import Cause, Link
from supervisor.cli.agent.why import _lines


def test_foreign_text_makes_no_line_of_its_own() -> None:
    forged = "x\nweb waits for nothing\x1b[2J"
    link = Link(
        actor="volume",
        waiter="pod/a/web",
        kind="cri",
        target=forged,
        what=forged,
        error=forged,
        detail=f"one\n{forged}",
    )
    lines = _lines(Cause(code="cri", sentence=forged, links=(link, link)), also=True)
    assert len(lines) == 6  # the sentence, two links, three lines of the process's state
    assert not [line for line in lines if "\n" in line or "\x1b" in line]
    assert "last error: x\\nweb waits for nothing\\x1b[2J" in lines[1]
