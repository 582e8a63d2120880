"""The lines of an answer to "why"."""

from proto.waits.chain import Answer, Cause, Link
from proto.waits.text import lines


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
    cause = Cause(code="cri", sentence=forged, links=(link, link))
    answer = Answer(subject="pod/a/web", causes=(cause, cause))
    found = lines(answer)
    # Two links and three lines of the process's state; the same below the second cause's sentence.
    assert len(found) == 5 + 6
    assert not [line for line in found if "\n" in line or "\x1b" in line]
    assert "last error: x\\nweb waits for nothing\\x1b[2J" in found[0]
    assert len(lines(answer, detail=False)) == 2 + 3
