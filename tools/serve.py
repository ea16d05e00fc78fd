"""Serves a folder of files to browsers: the built book, to one reader or to a classroom.

    python tools/serve.py _build/html --port 8000 [--host 0.0.0.0]

Takes the next free port when the one asked for is taken, and says so. Ctrl-C ends it.
"""

import argparse
import errno
import http.server
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

PORTS_TO_TRY = 50
EVERYONE = ("0.0.0.0", "::")  # hosts that let other machines in


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

    varies = False  # whether a build put a NAME.gz beside the file asked for, NAME
    packed = False  # whether that is what is sent

    def send_head(self):
        self.varies = self.packed = False
        self.varies = os.path.isfile(self.translate_path(self.path) + ".gz")  # False also for what is no name at all
        self.packed = self.varies and "gzip" in self.headers.get("Accept-Encoding", "")
        try:
            return super().send_head()
        except ValueError:  # a name with a zero byte, which no file has
            self.send_error(http.HTTPStatus.NOT_FOUND)
            return None

    def send_error(self, *args):
        self.varies = self.packed = False
        super().send_error(*args)

    def translate_path(self, path):
        return super().translate_path(path) + (".gz" if self.packed else "")

    def guess_type(self, path):
        return super().guess_type(path.removesuffix(".gz") if self.packed else path)

    def end_headers(self):
        if self.packed:
            self.send_header("Content-Encoding", "gzip")
        if self.varies:
            self.send_header("Vary", "Accept-Encoding")
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

    def __init__(self, address, handler):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # :: lets in those without IPv6 too
        super().server_bind()

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


def own_address() -> str | None:
    """This machine's IPv4 address in its network: the one that a packet to elsewhere would carry; none is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # an address that RFC 5737 keeps for documentation
            return probe.getsockname()[0]
    except OSError:  # no network
        return None


def addresses(host: str, port: int) -> list[str]:
    """Where to point a browser: this machine; and when others are let in, its number and its name in their network."""
    names = ["localhost", own_address(), socket.gethostname()] if host in EVERYONE else [host]
    return [f"http://{f'[{name}]' if ':' in name else name}:{port}/" for name in names if name]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Serve a built book.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines read (default: this one only)")
    parser.add_argument("--port", default="8000", help="where to begin to look for a free one (default: 8000)")
    chosen = parser.parse_args(arguments)
    if not chosen.host:
        parser.exit(2, "HOST is empty: it must be an address of this machine, or 0.0.0.0 to let others read.\n")
    if chosen.port not in map(str, range(1, 65536)):
        parser.exit(2, f"PORT is {chosen.port!r}: it must be a whole number from 1 to 65535.\n")
    wanted = int(chosen.port)
    if not (chosen.folder / "index.html").is_file():
        parser.error(f"{chosen.folder} holds no index.html: build the book first (make book)")
    try:
        server = open_server(chosen.folder, chosen.host, wanted)
    except (OSError, UnicodeError) as error:
        print(f"Cannot serve on {chosen.host}, port {wanted}: {error}", file=sys.stderr)
        return 1
    port = server.server_address[1]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if port != wanted:
            print(f"Port {wanted} is taken; using {port}.")
        print("\nThe book is at  " + "  and  ".join(addresses(chosen.host, port)) + "\nCtrl-C ends it.", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        print("\nStopped.")
    finally:
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
