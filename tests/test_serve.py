"""The server of the built book: right types, never stale, another port when the one asked for is taken."""

import gzip
import http.client
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import serve

SERVE = Path(serve.__file__)


@pytest.fixture
def folder(tmp_path):
    for name in ("index.html", "core.wasm", "core.mjs", "parts.whl", "live.js", "font.woff2"):
        (tmp_path / name).write_bytes(b"plain " * 100)
    (tmp_path / "core.wasm.gz").write_bytes(gzip.compress(b"plain " * 100))
    (tmp_path / "empty").mkdir()
    return tmp_path


def in_background(server):
    """Serve from a thread that looks whether it should end a hundred times a second, not twice."""
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def get(folder):
    """get(path, headers, method) → (status, headers, body) from a server of the folder."""
    server = serve.open_server(folder)
    in_background(server)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)

    def ask(path, headers=None, method="GET"):
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    yield ask
    connection.close()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("core.wasm", "application/wasm"),
        ("core.mjs", "text/javascript; charset=utf-8"),
        ("live.js", "text/javascript; charset=utf-8"),
        ("parts.whl", "application/zip"),
        ("index.html", "text/html; charset=utf-8"),
        ("font.woff2", "font/woff2"),
    ],
)
def test_types(get, name, kind):
    status, headers, body = get(f"/{name}")
    assert (status, headers["Content-type"], body) == (200, kind, b"plain " * 100)


def test_a_packed_file_is_sent_to_those_who_take_it(get):
    status, headers, body = get("/core.wasm?v=1", {"Accept-Encoding": "gzip, br"})
    assert (status, headers["Content-Encoding"], headers["Content-type"]) == (200, "gzip", "application/wasm")
    assert gzip.decompress(body) == b"plain " * 100
    assert headers["Vary"] == "Accept-Encoding"
    _, headers, _ = get("/core.wasm")
    assert "Content-Encoding" not in headers
    assert headers["Vary"] == "Accept-Encoding"
    assert not {"Content-Encoding", "Vary"} & set(get("/core.mjs", {"Accept-Encoding": "gzip"})[1])


def test_an_error_after_a_packed_file_is_not_packed(get):
    get("/core.wasm", {"Accept-Encoding": "gzip"})
    status, headers, body = get("/core.wasm", {"Accept-Encoding": "gzip"}, method="PATCH")
    assert status == 501
    assert not {"Content-Encoding", "Vary"} & set(headers)
    assert b"Unsupported method" in body


def test_a_browser_keeps_its_copy_and_asks_whether_it_is_the_newest(get, folder):
    _, headers, _ = get("/live.js")
    assert headers["Cache-Control"] == "no-cache"
    status, _, body = get("/live.js", {"If-Modified-Since": headers["Last-Modified"]})
    assert (status, body) == (304, b"")


def test_what_is_not_there_and_what_is_a_folder_are_not_found(get):
    assert get("/missing.html")[0] == 404
    assert get("/empty/")[0] == 404
    assert get("/../../etc/passwd")[0] == 404


@pytest.mark.parametrize("path", ["/%00", "/index.html%00", "/%ed%a0%80", "/" + 5000 * "a"])
def test_what_no_file_can_be_called_is_not_found_and_said_quietly(get, capsys, path):
    assert get(path)[0] == 404
    assert get("/index.html")[0] == 200
    assert capsys.readouterr().err == ""


def test_a_taken_port_is_said_and_the_next_one_used(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, SERVE, folder, "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline() for _ in range(3)]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == 0
            lines.append(process.stdout.read())
    said = "".join(lines)
    assert f"Port {port} is taken" in said
    assert f"http://127.0.0.1:{port}/" not in said
    assert "http://127.0.0.1:" in said
    assert said.endswith("Stopped.\n")


def test_a_folder_without_a_book_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        serve.main([str(tmp_path)])
    assert "build the book first" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["99999", "65536", "0", "-1", "80.0", "eighty", "", "9" * 5000])
def test_what_is_no_port_is_refused_in_one_sentence(folder, capsys, port):
    with pytest.raises(SystemExit, match="2"):
        serve.main([str(folder), f"--port={port}"])
    assert capsys.readouterr().err == f"PORT is {port!r}: it must be a whole number from 1 to 65535.\n"


def test_an_empty_or_a_foreign_host_is_refused_in_one_sentence(folder, capsys):
    with pytest.raises(SystemExit, match="2"):
        serve.main([str(folder), "--host", ""])
    assert capsys.readouterr().err.startswith("HOST is empty: ")
    for host in ("198.51.100.1", "2001:db8::1", "a..b"):
        assert serve.main([str(folder), "--host", host]) == 1
        assert capsys.readouterr().err.startswith(f"Cannot serve on {host}, port 8000: ")


def test_a_classroom_is_told_this_machines_number_and_name(monkeypatch):
    name = socket.gethostname()
    monkeypatch.setattr(serve, "own_address", lambda: "10.1.2.3")
    assert serve.addresses("127.0.0.1", 8000) == ["http://127.0.0.1:8000/"]
    assert serve.addresses("::1", 8000) == ["http://[::1]:8000/"]
    for everyone in ("0.0.0.0", "::"):
        told = serve.addresses(everyone, 80)
        assert told == ["http://localhost:80/", "http://10.1.2.3:80/", f"http://{name}:80/"]
    monkeypatch.setattr(serve, "own_address", lambda: None)
    assert serve.addresses("0.0.0.0", 80) == ["http://localhost:80/", f"http://{name}:80/"]


def test_the_own_address_is_one_of_this_machine_or_none(monkeypatch):
    if (address := serve.own_address()) is not None:
        with socket.socket() as here:
            here.bind((address, 0))

    class Unconnected(socket.socket):
        def connect(self, address):
            raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "socket", Unconnected)
    assert serve.own_address() is None


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6_lets_in_both(folder):
    server = serve.open_server(folder, "::")
    in_background(server)
    for host in ("::1", "127.0.0.1"):
        connection = http.client.HTTPConnection(host, server.server_address[1], timeout=10)
        connection.request("GET", "/index.html")
        assert connection.getresponse().status == 200
        connection.close()
    server.shutdown()
    server.server_close()
