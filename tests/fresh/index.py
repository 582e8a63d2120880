"""A package index of a directory of wheels, on loopback: `python3 index.py DIRECTORY PORT`. Nothing but Python's own.

It serves what https://packaging.python.org/en/latest/specifications/simple-repository-api/ asks of one, in HTML.
It runs inside the fresh machine, writes "serving" once it does, and ends when its standard input does.
"""

import html
import http.server
import re
import sys
import threading
from pathlib import Path
from urllib.parse import unquote


def main(directory: Path, port: int) -> None:
    class Index(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, name = unquote(self.path).strip("/").partition("/")
            wheels = {path.name: path for path in directory.glob("*.whl")}
            if kind == "simple":
                names = [wheel for wheel in sorted(wheels) if normal(wheel.split("-")[0]) == normal(name)]
                links = "".join(f'<a href="/files/{html.escape(wheel)}">{html.escape(wheel)}</a>' for wheel in names)
                self.answer(200 if names else 404, "text/html", f"<!DOCTYPE html><body>{links}</body>".encode())
            elif kind == "files" and name in wheels:
                self.answer(200, "application/octet-stream", wheels[name].read_bytes())
            else:
                self.answer(404, "text/plain", b"no such page\n")

        def answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("serving", flush=True)
        sys.stdin.read()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
