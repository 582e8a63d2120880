"""The type of options that take seconds, such as `--timeout`."""

from __future__ import annotations

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """Seconds in a range. NaN passes click's comparisons with the ends of a range, and is refused here."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails for other text, and outside of the range."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value!r} is not a valid number.", param, ctx)
        return found


TIMEOUT = Seconds(0, 86_400)
"""Up to a day. A longer wait does not fit the kernel's milliseconds."""
