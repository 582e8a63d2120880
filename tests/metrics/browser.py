"""Debian's Chromium without a screen, driven over its debugging pipe: a page's text and a picture, nothing else."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

MACHINE_CHANGED = "net::ERR_NETWORK_CHANGED"
"""Chromium ends its requests when the machine gets another network interface. Other tests make interfaces meanwhile."""


class Browser:
    """One page in one browser. Everything it keeps is in a directory that goes with it."""

    def __init__(self) -> None:
        chromium = shutil.which("chromium")
        assert chromium, "install Debian's chromium: .ci/run does"
        self._directory = tempfile.mkdtemp(prefix="nvb-", dir="/tmp")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        line = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
            "--window-size=1280,1000", f"--user-data-dir={self._directory}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        # The pipe is descriptors 3 and 4 of the browser, wherever these are here.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *line],
            pass_fds=(to_browser, from_browser),
            env={**os.environ, "HOME": self._directory},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.messages: list[str] = []
        """The page's console messages and errors, but for requests that MACHINE_CHANGED ended."""
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._directory, ignore_errors=True)

    def open(self, url: str) -> None:
        """Go there."""
        self._call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self) -> str:
        """All that the page shows."""
        return str(self.evaluate("document.body.innerText"))

    def wait(self, expression: str, timeout_s: float = 30.0) -> Any:
        """The expression's value, once it is true."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, (
                f"not within {timeout_s:g} s: {expression}; {self.messages}; {self.text()}"
            )
            time.sleep(0.05)
        return value

    def picture(self, path: Path) -> None:
        """A screenshot, as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": params}
        if not method.startswith("Target."):
            request["sessionId"] = self._session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                message = json.dumps(answer["params"])
                if MACHINE_CHANGED not in message:
                    self.messages.append(message)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "the browser says nothing"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer
