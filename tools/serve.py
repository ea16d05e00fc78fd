"""Serves a folder of files to browsers: the built book, to one reader or to a classroom.

    python tools/serve.py _build/html --port 8000 [--host 0.0.0.0]

Takes the next free port when the one asked for is taken, and says so. Ctrl-C ends it.
"""

import argparse
import errno
import http.server
import signal
import socket
import sys
from functools import partial
from pathlib import Path

PORTS_TO_TRY = 50


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files with the types browsers insist on, revalidated on each load so that a rebuilt page is never stale."""

    # Not left to the machine's own table: without these a browser refuses module scripts and streaming WebAssembly.
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".json": "application/json",
        ".mjs": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
        ".woff2": "font/woff2",
    }
    protocol_version = "HTTP/1.1"  # connections are kept: a page of thirty files opens six of them, not thirty
    timeout = 60  # seconds an idle one is kept

    packed = False  # whether the file asked for is sent as its NAME.gz, which a build may put beside NAME

    def send_head(self):
        self.packed = False
        beside = Path(self.translate_path(self.path) + ".gz")
        self.packed = "gzip" in self.headers.get("Accept-Encoding", "") and beside.is_file()
        return super().send_head()

    def translate_path(self, path):
        return super().translate_path(path) + (".gz" if self.packed else "")

    def guess_type(self, path):
        return super().guess_type(path.removesuffix(".gz") if self.packed else path)

    def end_headers(self):
        if self.packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Cache-Control", "no-cache")  # keep a copy, but ask whether it is still the newest
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, *args):
        """Quiet: the terminal keeps showing the address."""

    def list_directory(self, path):
        self.send_error(http.HTTPStatus.NOT_FOUND)


class Server(http.server.ThreadingHTTPServer):
    """One thread a connection; a reader who leaves in the middle of a file is no error."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # elsewhere this lets a restart have its port back at once

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def open_server(folder: Path, host: str = "127.0.0.1", port: int = 0) -> Server:
    """A server of the folder's files on the first free port from `port` on; port 0 takes any.

    Raises OSError when none of the ports tried is free, or the host is not one of this machine.
    """
    handler = partial(Handler, directory=str(folder))
    for candidate in range(port, min(port + PORTS_TO_TRY, 65536)) if port else [0]:
        try:
            return Server((host, candidate), handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(f"no free port from {port} to {candidate}")


def addresses(host: str, port: int) -> list[str]:
    """Where to point a browser: this machine, and this machine's name in the classroom when others are let in."""
    if host not in ("0.0.0.0", "::"):
        return [f"http://{host}:{port}/"]
    return [f"http://localhost:{port}/", f"http://{socket.gethostname()}:{port}/"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Serve a built book.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines read (default: this one only)")
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args(arguments)
    if not (chosen.folder / "index.html").is_file():
        parser.error(f"{chosen.folder} holds no index.html: build the book first (make book)")
    try:
        server = open_server(chosen.folder, chosen.host, chosen.port)
    except (OSError, OverflowError) as error:
        print(f"Cannot serve on {chosen.host}, port {chosen.port}: {error}", file=sys.stderr)
        return 1
    port = server.server_address[1]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if port != chosen.port:
            print(f"Port {chosen.port} is taken; using {port}.")
        print("\nThe book is at  " + "  and  ".join(addresses(chosen.host, port)) + "\nCtrl-C ends it.", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        print("\nStopped.")
    finally:
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
