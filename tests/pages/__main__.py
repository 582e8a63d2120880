"""`python -m tests.pages` writes the generated parts of pages; `prose` counts sentences that are hard to read."""

from __future__ import annotations

import sys

from tests.pages import generated, prose

if sys.argv[1:2] == ["prose"]:
    sys.exit(prose.main(sys.argv[2:]))
generated.write()
