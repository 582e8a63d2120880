"""Log lines of every process on stderr, each naming the actor: text with a klog-like header, or JSON.

`I1120 14:03:22.123456 supervisor  message`. Covers format and verbosity; not where stderr goes.
"""

from __future__ import annotations

import json
import logging
import sys
import time

NOTICE = 25
"""Key facts, shown at verbosity 0 too. Between INFO and WARNING; its letter is I."""
TRACE = 5
"""Every message, from verbosity 6."""

log = logging.getLogger(__name__)

_LEVEL_BY_VERBOSITY = ((6, TRACE), (4, logging.DEBUG), (2, logging.INFO))


class Formatter(logging.Formatter):
    """The header of klog (severity letter, month and day, time of day with microseconds), then the actor's name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.actor = name

    def format(self, record: logging.LogRecord) -> str:
        """One line, and below it the traceback where there is one."""
        letter = "E" if record.levelno >= logging.ERROR else "W" if record.levelno >= logging.WARNING else "I"
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        line = f"{letter}{stamp}.{micros:06d} {self.actor:<11} {record.getMessage()}"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        return f"{line}\n{record.exc_text}" if record.exc_text else line


class JSONFormatter(logging.Formatter):
    """One object a line with the keys of Kubernetes' JSON logs (`ts` in ms, `caller`, `msg`, `v`, `err`) and `actor`.

    https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#json-log-format
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.actor = name

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback is the `err`."""
        entry: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "level": "error" if record.levelno >= logging.ERROR else "warning" if record.levelno > NOTICE else "info",
            "actor": self.actor,
            "msg": record.getMessage(),
        }
        if record.levelno <= NOTICE:
            entry["v"] = next((v for v, level in _LEVEL_BY_VERBOSITY if record.levelno <= level), 0)
        if record.exc_info:
            entry["err"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def level_for(verbosity: int) -> int:
    """The stdlib level of a klog-style verbosity: 0 warnings and key facts, 2 default, 4 debug, 6 every message."""
    for at_least, level in _LEVEL_BY_VERBOSITY:
        if verbosity >= at_least:
            return level
    return NOTICE


def setup(name: str, verbosity: int, log_format: str = "text") -> None:
    """Send all logging of this process to stderr as actor `name`. Takes over what a parent of the fork had set up.

    `log_format` is text or json.
    """
    kind = JSONFormatter if log_format == "json" else Formatter
    root = logging.getLogger()
    formatter = root.handlers[0].formatter if len(root.handlers) == 1 else None
    if isinstance(formatter, kind):  # to make it all anew would copy 0.6 MB of what is shared with the parent
        formatter.actor = name
        set_verbosity(verbosity)
        return
    logging.raiseExceptions = False  # a closed stderr must not add tracebacks to every line
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(kind(name))
    root.handlers[:] = [handler]
    set_verbosity(verbosity)


def set_verbosity(verbosity: int) -> None:
    """Change how much is logged from now on."""
    root, level = logging.getLogger(), level_for(verbosity)
    if root.level != level:
        root.setLevel(level)
        log.debug("verbosity is %d now", verbosity)
