"""Programs that tests run in containers with a shell and the usual tools, or with Python."""

from __future__ import annotations

PROCESSES = ("sh", "-c", "for one in /proc/[0-9]*; do tr '\\0' ' ' <$one/cmdline && echo; done 2>/dev/null; true")
"""Prints the command line of each process on a line, like `ps -o args`."""

LISTENING = ("cat", "/proc/net/tcp", "/proc/net/tcp6")
"""Prints the connections of the network namespace; `listens` parses them."""

RAW_SOCKET = ("python3", "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)")
"""The beginning of ping's output."""

BRIDGE = (
    "python3",
    "-c",
    "import fcntl, socket; one = socket.socket(); [fcntl.ioctl(one, call, b'foobar') for call in (0x89A0, 0x89A1)]",
)
"""Adds and deletes a bridge, as brctl does: SIOCBRADDBR and SIOCBRDELBR."""

_SERVERS = """
import shutil, socketserver, sys, threading

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while content := self.request.recv(65536):
            self.request.sendall(content)

class Much(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(bytes(3_000_000))

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128

for port, handler in ((80, Echo), (81, Much)):
    threading.Thread(target=Server(("", port), handler).serve_forever).start()
threading.Event().wait()  # Python 3.12 starts no thread once the main thread has ended
"""
SERVERS = ("python3", "-c", _SERVERS)
"""Port 80 echoes; port 81 sends 3,000,000 bytes and closes."""

_HEADLESS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)
"""
HEADLESS = ("python3", "-c", _HEADLESS)
"""Its first thread exits, by exit(2); another one goes on. The process is a zombie in /proc, and alive."""

WEB = ("sh", "-c", "mkdir /web; echo served > /web/index.html; exec python3 -m http.server 80 --directory /web")
"""Serves one page on port 80."""


def listens(connections: str, port: int) -> bool:
    """Return True when a line of LISTENING's output is a listening socket on the port."""
    lines = (line.split() for line in connections.splitlines())
    return any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines if len(words) > 3)
