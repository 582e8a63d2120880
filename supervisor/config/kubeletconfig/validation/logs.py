"""Rules of the agent's own logs, metrics and traces."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from supervisor.config.kubeletconfig.feature_gates import Gates, requirement
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_PREVIOUS_MINOR = "1.35"


def rules(config: KubeletConfiguration, gates: Gates) -> Iterator[Problem]:
    """Violations in the fields about logs, metrics and traces."""
    yield from _logging(config, gates)
    yield from _pod_logs_dir(config.pod_logs_dir)
    version = config.show_hidden_metrics_for_version
    if version not in ("", _PREVIOUS_MINOR):
        problem = f"must be empty or {_PREVIOUS_MINOR}, the previous minor version, not {version[:60]!r}"
        yield Problem("showHiddenMetricsForVersion", problem)
    if config.tracing is not None:
        if not _has_exporter():
            yield Problem("tracing", "needs OpenTelemetry's exporter; install it: pip install 'nodevisor[tracing]'")
        if config.tracing.endpoint is not None:
            yield from _tracing_endpoint(config.tracing.endpoint)


def _logging(config: KubeletConfiguration, gates: Gates) -> Iterator[Problem]:
    logging = config.logging
    if logging.vmodule and logging.format != "text":
        yield Problem("logging.vmodule", "is only supported for the log format text")
    for index, item in enumerate(logging.vmodule or ()):
        here = f"logging.vmodule[{index}]"
        if not item.file_pattern:
            yield Problem(f"{here}.filePattern", "must not be empty")
        elif "=" in item.file_pattern or "," in item.file_pattern:
            problem = f"must not contain an equal sign or a comma: {item.file_pattern[:60]!r}"
            yield Problem(f"{here}.filePattern", problem)
        if item.verbosity > 2**31 - 1:
            yield Problem(f"{here}.verbosity", f"must be between 0 and {2**31 - 1}, not {item.verbosity}")
    for name, options in (("text", logging.options.text), ("json", logging.options.json)):
        if not gates.enabled("LoggingAlphaOptions"):
            if options.split_stream:
                yield Problem(f"logging.options.{name}.splitStream", requirement("LoggingAlphaOptions"))
            if options.info_buffer_size != "0":
                yield Problem(f"logging.options.{name}.infoBufferSize", requirement("LoggingAlphaOptions"))


def _pod_logs_dir(path: str) -> Iterator[Problem]:
    if not path.startswith("/"):
        yield Problem("podLogsDir", f"must be an absolute path, not {path[:60]!r}")
    elif path != "/" and (path.endswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/"))):
        yield Problem("podLogsDir", f"must be normalized, without . , .. , double or final slashes, not {path[:60]!r}")
    if not path.isascii() or "\0" in path:
        yield Problem("podLogsDir", f"must contain ASCII characters only, not {path[:60]!r}")


def _tracing_endpoint(endpoint: str) -> Iterator[Problem]:
    scheme = endpoint.partition("://")[0] if "//" in endpoint else "dns"
    if scheme not in ("dns", "unix", "unix-abstract"):
        problem = f"must be HOST:PORT or begin with dns:, unix: or unix-abstract:, not {endpoint[:60]!r}"
        yield Problem("tracing.endpoint", problem)


def _has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.grpc") is not None
    except ModuleNotFoundError:
        return False
