"""The log format of every process: lines on stderr with the actor's name, as text in klog's format or as JSON.

A text line is `I1120 14:03:22.123456    1234 daemon.py:72] supervisor: message`, with the pid. The module also sets
the verbosity, of the process and by file.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from proto.common import safe_text

NOTICE = 25
"""Key facts, shown at verbosity 0 too. Between INFO and WARNING; its letter is I."""
TRACE = 5
"""Every message, from verbosity 6."""

MOST_VERBOSITY = 10
"""klog's highest level by convention. Levels above 6 log nothing more here."""

POD = "pod"
"""Key of an entry's `extra`: (namespace, name) of its pod. Text lines have it in their message."""

log = logging.getLogger(__name__)

_LEVEL_BY_VERBOSITY = ((6, TRACE), (4, logging.DEBUG), (2, logging.INFO))


class Formatter(logging.Formatter):
    """Text lines: klog's header (severity, date, time with microseconds, pid, file:line), actor's name, message."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.actor = name

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback, if any, indented below it. Foreign text cannot begin a line of the log."""
        letter = "E" if record.levelno >= logging.ERROR else "W" if record.levelno >= logging.WARNING else "I"
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        header = f"{letter}{stamp}.{micros:06d} {record.process or 0:7d} {record.filename}:{record.lineno}]"
        line = f"{header} {self.actor}: {safe_text.one_line(record.getMessage())}"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        return f"{line}\n{safe_text.indented(record.exc_text or '')}".rstrip("\n")


class JSONFormatter(logging.Formatter):
    """One object a line with the keys of Kubernetes' JSON logs (`ts` in ms, `caller`, `logger`, `msg`, `v`, `err`).

    `logger` is the actor. Entries of a pod's worker have the `pod`, as klog's KObj.

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
            "logger": self.actor,
            "msg": record.getMessage(),
        }
        if pod := getattr(record, POD, None):
            entry[POD] = {"name": pod[1], "namespace": pod[0]}
        if record.levelno <= NOTICE:
            entry["v"] = next((v for v, level in _LEVEL_BY_VERBOSITY if record.levelno <= level), 0)
        if record.exc_info:
            entry["err"] = self.formatException(record.exc_info)
        return safe_text.shown_json(json.dumps(entry, ensure_ascii=False))


def level_for(verbosity: int) -> int:
    """The stdlib level of a klog-style verbosity: 0 warnings and key facts, 2 default, 4 debug, 6 every message."""
    for at_least, level in _LEVEL_BY_VERBOSITY:
        if verbosity >= at_least:
            return level
    return NOTICE


class _Files:
    """Verbosities by file (--vmodule), as klog has them: they can raise the process's, and not lower it."""

    def __init__(self) -> None:
        self.patterns: Mapping[str, int] = {}
        self.raised: set[logging.Logger] = set()

    def fit(self, loggers: Iterable[object]) -> None:
        """Set the levels of loggers that a pattern matches. A module's logger has its dotted name."""
        for logger in loggers:
            if not isinstance(logger, logging.Logger):
                continue
            path = logger.name.replace(".", "/")
            base = path.rpartition("/")[2]
            wanted = [n for one, n in self.patterns.items() if fnmatchcase(path if "/" in one else base, one)]
            if wanted:  # the first pattern counts
                logger.setLevel(min(level_for(wanted[0]), logging.getLogger().level))
                self.raised.add(logger)
            elif logger in self.raised:
                logger.setLevel(logging.NOTSET)
                self.raised.discard(logger)


_files = _Files()


class _Logger(logging.Logger):
    """A logger that is made later, by a module that is imported when it is needed."""

    def __init__(self, name: str, level: int = logging.NOTSET) -> None:
        super().__init__(name, level)
        _files.fit([self])


def setup(name: str, verbosity: int, log_format: str = "text", vmodule: Mapping[str, int] | None = None) -> None:
    """Send all logging of this process to stderr as actor `name`. After a fork it reuses the parent's handler.

    `log_format` is text or json. `vmodule` has verbosities by file name without .py, or by path with slashes; both may
    have wildcards.
    """
    _files.patterns = vmodule or {}
    if vmodule:
        logging.setLoggerClass(_Logger)
    kind = JSONFormatter if log_format == "json" else Formatter
    root = logging.getLogger()
    formatter = root.handlers[0].formatter if len(root.handlers) == 1 else None
    if isinstance(formatter, kind):  # new objects would copy 0.6 MB of memory that is shared with the parent
        formatter.actor = name
        set_verbosity(verbosity)
        return
    logging.raiseExceptions = False  # a closed stderr must not add tracebacks to every line
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(kind(name))
    root.handlers[:] = [handler]
    set_verbosity(verbosity)


def wrong_verbosity(verbosity: int) -> str:
    """The reason to refuse this verbosity; empty when it is valid."""
    if 0 <= verbosity <= MOST_VERBOSITY:
        return ""
    return f"cannot set the verbosity to {verbosity}: use a number from 0 to {MOST_VERBOSITY}"


class Limited:
    """Limits log lines that peers or containers can cause at any rate, and logs how many it left out."""

    def __init__(self, logger: logging.Logger, most: int = 10, period_s: float = 30.0) -> None:
        self._logger, self._most, self._period_s = logger, most, period_s
        self._began = float("-inf")
        self._said = self._unsaid = 0

    def log(self, level: int, text: str, *args: object, exc_info: bool = False) -> bool:
        """Log the line, or count it. True for the first counted line: call `catch_up` after the period."""
        now = time.monotonic()
        if now >= self._began + self._period_s:
            self.catch_up()
            self._began, self._said = now, 0
        if self._said < self._most:
            self._said += 1
            self._logger.log(level, text, *args, exc_info=exc_info, stacklevel=2)
            return False
        self._unsaid += 1
        return self._unsaid == 1

    def catch_up(self) -> None:
        """Log how many lines were counted only."""
        unsaid, self._unsaid = self._unsaid, 0
        if unsaid:
            self._logger.warning("%d more lines like the ones before were not logged", unsaid, stacklevel=2)


def set_verbosity(verbosity: int) -> None:
    """Set the level of the root logger."""
    root, level = logging.getLogger(), level_for(verbosity)
    if root.level != level:
        root.setLevel(level)
        log.debug("verbosity is %d now", verbosity)
    _files.fit(list(logging.Logger.manager.loggerDict.values()) if _files.patterns or _files.raised else ())
