import hashlib
import io
import re
import shutil
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl.sim.data.catalogue import load
from equifl.sim.data.download import SOURCES, Source, get, locate, places
from tests.conftest import free_port

ADDRESSES = [source.addresses for source in SOURCES.values()]  # before the tests put others there

CONTENT = {"a.bin": bytes(range(256)) * 4096, "b.bin": b"short"}
TINY = Source(
    folder="tiny",
    files={name: "sha256:" + hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()},
    addresses=(),
    download=sum(map(len, CONTENT.values())),
)


def put_tiny(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Folder(Quiet, SimpleHTTPRequestHandler):
    """Serves the files of a folder."""


class Broken(Quiet):
    """Promises more than it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")


class Garbled(Quiet):
    """Does not speak HTTP."""

    def do_GET(self) -> None:
        self.wfile.write(b"220 mail server\r\n")


class Unmeasured(Quiet):
    """Does not say how much it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT[self.path.rpartition("/")[2]])


def answering(*headers: tuple[str, str], status: int = 200, body: bytes = b"", forever: bool = False) -> type[Quiet]:
    """A server that always answers so; `forever`: that it sends the body until nobody reads it any more."""

    class Answering(Quiet):
        def do_GET(self) -> None:
            self.send_response(status)
            for header in headers:
                self.send_header(*header)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)
                while forever:
                    self.wfile.write(body)

    return Answering


class Servers:
    """Starts servers, and stops them all at the end."""

    def __init__(self) -> None:
        self._running: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(self, handler: Any) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        self._running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    def stop(self) -> None:
        for server, thread in self._running:
            server.shutdown()
            server.server_close()
            thread.join()


@pytest.fixture
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.stop()


@pytest.fixture
def good(servers: Servers, tmp_path: Path) -> str:
    """The address of a server that has the tiny data set."""
    put_tiny(tmp_path / "published")
    return servers.start(partial(Folder, directory=tmp_path / "published"))


def published_at(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    monkeypatch.setitem(SOURCES, "tiny", replace(TINY, addresses=addresses))


def found(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_data_sets_without_files_have_no_folder() -> None:
    with pytest.raises(ValueError, match=r"data set with files: 'digits' is not known; allowed: mnist, "):
        get("digits")


def test_places_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert places() == [tmp_path / "cache" / "equifl"]
    monkeypatch.setenv("EQUIFL_DATA", "~/here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places(Path("there")) == [Path("there"), tmp_path / "here", tmp_path / "cache" / "equifl"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert places()[-1] == tmp_path / ".cache" / "equifl"


def test_looks_in_data_dir_then_the_environment_then_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine, environment, cache = tmp_path / "mine", tmp_path / "environment", tmp_path / "cache" / "equifl"
    monkeypatch.setenv("EQUIFL_DATA", str(environment))
    monkeypatch.setitem(SOURCES, "tiny", TINY)
    assert locate("tiny", mine) is None
    for place in (cache, environment, mine):
        put_tiny(place / "tiny")
        assert locate("tiny", mine) == get("tiny", mine) == place / "tiny"
    (mine / "tiny" / "b.bin").unlink()  # a folder with a part missing is none
    assert locate("tiny", mine) == environment / "tiny"


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_a_damaged_file_is_refused_by_name(damage: str, real_data: Path, tmp_path: Path) -> None:
    shutil.copytree(real_data / "mnist", tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    path.write_bytes(content[:-1] if damage == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        ValueError, match=rf"{path}: damaged, or another file .*; delete it, and it will be downloaded"
    ):
        load("mnist", data_dir=tmp_path)


def test_downloads_into_the_first_place_that_is_set(
    good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published_at(monkeypatch, good)
    assert get("tiny") == tmp_path / "cache" / "equifl" / "tiny"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("EQUIFL_DATA", str(tmp_path / "environment"))
    assert get("tiny") == tmp_path / "environment" / "tiny"
    monkeypatch.setenv("EQUIFL_DATA", str(tmp_path / "yet another"))
    folder = get("tiny", tmp_path / "mine")
    assert folder == tmp_path / "mine" / "tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT


def test_says_how_far_it_is(good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published_at(monkeypatch, good)
    calls: list[tuple[str, int, int | None]] = []
    get("tiny", tmp_path / "mine", progress=lambda *call: calls.append(call))
    for name, content in CONTENT.items():
        done = [bytes_done for file, bytes_done, _ in calls if file == name]
        assert done == sorted(done)
        assert done[-1] == len(content)
        assert {total for file, _, total in calls if file == name} == {len(content)}
    assert len(calls) > 2
    calls.clear()
    get("tiny", tmp_path / "mine", progress=lambda *call: calls.append(call))
    assert calls == []  # it is here


def test_does_not_need_to_be_told_the_length(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published_at(monkeypatch, servers.start(Unmeasured))
    totals = set()
    get("tiny", tmp_path, progress=lambda _, __, total: totals.add(total))
    assert totals == {None}


def test_a_mirror_serves_when_the_publisher_does_not(
    good: str, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = f"http://127.0.0.1:{free_port()}/"
    published_at(monkeypatch, refused, servers.start(Broken), good + "nowhere/", good)
    assert found(get("tiny", tmp_path / "mine")) == sorted(CONTENT)


def test_only_what_is_missing_is_downloaded(good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published_at(monkeypatch, good)
    put_tiny(tmp_path / "mine" / "tiny")
    (tmp_path / "mine" / "tiny" / "b.bin").unlink()
    files = set()
    get("tiny", tmp_path / "mine", progress=lambda file, _, __: files.add(file))
    assert files == {"b.bin"}


def refusal(folder: Path) -> str:
    """The message of a download that fails, which leaves nothing behind."""
    with pytest.raises(ValueError) as caught:
        get("tiny", folder)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(f"put a.bin, b.bin into {folder / 'tiny'}")
    assert found(folder) == []
    return message


def test_refused_connections_say_which_files_to_put_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    addresses = [f"http://127.0.0.1:{free_port()}/" for _ in range(2)]
    published_at(monkeypatch, *addresses)
    message = refusal(tmp_path)
    assert message.startswith(f"tiny: not downloaded ({addresses[0]}: ")
    assert addresses[1] in message


def test_not_found(good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published_at(monkeypatch, good + "nowhere/")
    assert "HTTP Error 404" in refusal(tmp_path / "mine")


def test_a_wrong_digest_is_not_kept(good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published_at(monkeypatch, good)
    (tmp_path / "published" / "a.bin").write_bytes(b"<html>We have moved</html>")
    assert "what came is not a.bin (its sha256 is not the published one)" in refusal(tmp_path / "mine")


def test_an_answer_that_is_none(servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published_at(monkeypatch, servers.start(Garbled))
    assert "220 mail server" in refusal(tmp_path)


def test_an_interrupted_download_leaves_no_file(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published_at(monkeypatch, servers.start(Broken))
    assert "9 " in refusal(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (("Content-Length", "many"), "has the Content-Length many; expected a number of bytes"),
        (("Content-Length", "-5"), "has the Content-Length -5; expected"),
        (("Content-Length", "9" * 5000), r"has the Content-Length 9+... \(5,0.. characters\)"),
        (("Content-Length", "1e3"), "has the Content-Length 1e3; expected"),
        (("Content-Length", str(2**40)), "has 1099511627776 bytes; expected: at most 1048581, which all published"),
        (("Content-Length", "1048582"), "has 1048582 bytes; expected: at most 1048581"),
    ],
)
def test_a_bad_length_goes_to_the_mirror(
    header: tuple[str, str], message: str, good: str, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = servers.start(answering(header, body=b"something"))
    published_at(monkeypatch, bad)
    assert re.search(message, refusal(tmp_path / "mine"))
    published_at(monkeypatch, bad, good)
    assert found(get("tiny", tmp_path / "mine")) == sorted(CONTENT)


def test_no_more_is_read_than_was_published(servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    endless = answering(body=bytes(2**16), forever=True)
    published_at(monkeypatch, servers.start(endless))
    sizes = []
    with pytest.raises(ValueError, match=r"what came is not a\.bin \(its sha256 is not the published one\)"):
        get("tiny", tmp_path, progress=lambda _, done, __: sizes.append(done))
    assert sizes[-1] == TINY.download
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("file:///etc/passwd", "file:///etc/passwd' is not allowed"),
        ("ftp://127.0.0.1/a.bin", "is redirected to ftp://127.0.0.1/a.bin; allowed: http and https"),
        ("data:text/plain,short", "data:text/plain,short' is not allowed"),
        ("http://[::1/a.bin", "Invalid IPv6 URL"),
    ],
)
def test_redirects_leave_the_web_never(
    target: str, message: str, good: str, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = servers.start(answering(("Location", target), status=302))
    published_at(monkeypatch, bad)
    assert message in refusal(tmp_path / "mine")
    published_at(monkeypatch, bad, good)
    assert found(get("tiny", tmp_path / "mine")) == sorted(CONTENT)


def test_redirects_within_the_web_are_followed(
    good: str, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Moved(Quiet):
        def do_GET(self) -> None:
            self.send_response(301)
            self.send_header("Location", good + self.path.rpartition("/")[2])
            self.end_headers()

    published_at(monkeypatch, servers.start(Moved))
    assert found(get("tiny", tmp_path / "mine")) == sorted(CONTENT)


@pytest.mark.parametrize("addresses", ADDRESSES)
def test_what_is_encrypted_is_tried_first(addresses: tuple[str, ...]) -> None:
    assert addresses[0].startswith("https://")
    assert list(addresses) == sorted(addresses, key=lambda address: not address.startswith("https://"))


def test_a_user_who_interrupts_leaves_no_file(good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published_at(monkeypatch, good)

    def enough(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("tiny", tmp_path / "mine", progress=enough)
    assert found(tmp_path / "mine") == []


def test_a_file_in_the_place_of_the_folder(good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published_at(monkeypatch, good)
    (tmp_path / "mine").write_text("")
    with pytest.raises(ValueError, match=r"tiny: not downloaded .*; put a.bin, b.bin into"):
        get("tiny", tmp_path / "mine")


def packed(folder: Path, members: dict[str, bytes]) -> Path:
    path = folder / "tiny.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("whole", [True, False])
def test_of_an_archive_only_the_files_are_kept(
    whole: bool, good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    members = {f"tiny/{name}": content for name, content in CONTENT.items()}
    path = packed(tmp_path / "published", members | {"tiny/readme.html": b"", "../../escaped": b"", "/escaped": b""})
    digest = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(SOURCES, "tiny", replace(TINY, addresses=(good,), archive=("tiny.tar.gz", digest)))
    if whole:
        folder = get("tiny", tmp_path / "mine")
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
        assert not list(tmp_path.rglob("escaped"))
        return
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"put a.bin, b.bin \(they are in tiny.tar.gz\) into"):
        get("tiny", tmp_path / "mine")
    assert found(tmp_path / "mine") == []


def test_a_member_that_is_not_the_published_one_is_not_kept(
    good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = packed(tmp_path / "published", {"tiny/a.bin": b"something else", "tiny/b.bin": CONTENT["b.bin"]})
    digest = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(SOURCES, "tiny", replace(TINY, addresses=(good,), archive=("tiny.tar.gz", digest)))
    with pytest.raises(ValueError, match=r"what came is not a.bin"):
        get("tiny", tmp_path / "mine")
    assert found(tmp_path / "mine") == []


def test_a_data_set_is_loaded_over_the_network(
    servers: Servers, real_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = servers.start(partial(Folder, directory=real_data / "heart-disease"))
    monkeypatch.setitem(SOURCES, "heart-disease", replace(SOURCES["heart-disease"], addresses=(address,)))
    downloaded = load("heart-disease", data_dir=tmp_path)
    np.testing.assert_array_equal(downloaded.x_train, load("heart-disease", data_dir=real_data).x_train)
    assert found(tmp_path) == sorted(SOURCES["heart-disease"].files)
