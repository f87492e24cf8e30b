"""Files of data sets arrive whole or not at all, and every failure says what to do."""

import gzip
import hashlib
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mssl import datasets
from mssl.datasets import _fetch
from mssl.exceptions import DatasetError, MissingDependencyError

needs_data = pytest.mark.skipif(not os.environ.get("MSSL_DATA"), reason="MSSL_DATA is not set")
DATA = os.environ.get("MSSL_DATA", "")  # read before any test changes it
BODY = b"a small data file\n" * 1000


def known(body=BODY, path="some/file.mat", check="sha256", urls=()):
    return _fetch.DataFile(path, check, _fetch.digest(body, check), urls)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if "missing" in self.path:
            self.send_error(404)
            return
        body = self.server.bodies.get(self.path, BODY)
        sent = body[: len(body) // 2] if "cut" in self.path else body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.asked, http.bodies = [], {}
        http.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield http
        http.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("MSSL_DATA", raising=False)
    monkeypatch.setenv("MSSL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


pooch_only = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import pooch"], capture_output=True, check=False).returncode != 0,
    reason="pooch is not installed",
)


@pooch_only
def test_a_download_happens_once_and_is_whole(server, cache):
    file = known()
    path = _fetch.fetch_file(file, base_url=server.url)
    assert path == cache / "some" / "file.mat"
    assert path.read_bytes() == BODY
    assert _fetch.fetch_file(file, base_url=server.url) == path
    assert server.asked == ["/some/file.mat"]
    assert files_below(cache) == [path]


@pooch_only
def test_the_second_mirror_answers_where_the_first_fails(server, cache):
    file = known(urls=(f"{server.url}/missing", f"{server.url}/cut", f"{server.url}/whole"))
    assert _fetch.fetch_file(file).read_bytes() == BODY
    assert server.asked == ["/missing", "/cut", "/whole"]


@pooch_only
@pytest.mark.parametrize(
    ("place", "words"),
    [("missing/file", "404"), ("cut/file", "could not be downloaded"), ("other/file", "expected")],
)
def test_bad_answers_leave_nothing(server, cache, place, words):
    server.bodies["/other/file"] = b"not the file"
    with pytest.raises(DatasetError, match=words) as caught:
        _fetch.fetch_file(known(path=place), base_url=server.url)
    assert "MSSL_DATA" in str(caught.value)
    assert server.url in str(caught.value)
    assert files_below(cache) == []


@pooch_only
def test_a_cut_gzip_file_is_refused(server, cache):
    packed = gzip.compress(BODY)
    file = known(packed, path="file.gz", check="sha256-unpacked")
    server.bodies["/file.gz"] = packed[:-12]
    with pytest.raises(DatasetError, match="gzip file is damaged"):
        _fetch.fetch_file(file, base_url=server.url)
    server.bodies["/file.gz"] = packed
    assert _fetch.fetch_file(file, base_url=server.url).read_bytes() == packed


@pooch_only
def test_no_network_is_explained(cache):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(DatasetError, match="could not be downloaded") as caught:
        _fetch.fetch_file(known(), base_url=f"http://127.0.0.1:{port}")
    assert "Connection" in str(caught.value)
    assert "cannot be written" not in str(caught.value)
    assert files_below(cache) == []


def test_a_cache_that_cannot_be_written_is_explained(cache, tmp_path):
    cache.write_text("a file where the folder should be")
    with pytest.raises(DatasetError, match=r"cannot be written.*MSSL_CACHE"):
        _fetch.fetch_file(known(urls=("http://127.0.0.1:9/file",)))
    assert cache.read_text() == "a file where the folder should be"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_cache_without_permission_is_explained(cache):
    cache.mkdir()
    cache.chmod(0o500)
    try:
        with pytest.raises(DatasetError, match=r"cannot be written.*MSSL_CACHE"):
            _fetch.fetch_file(known(urls=("http://127.0.0.1:9/file",)))
    finally:
        cache.chmod(0o700)


@pooch_only
def test_a_damaged_cache_is_fetched_again(server, cache):
    file = known()
    path = _fetch.fetch_file(file, base_url=server.url)
    path.write_bytes(BODY[:-1])
    assert _fetch.find_file(file) is None
    assert _fetch.fetch_file(file, base_url=server.url).read_bytes() == BODY
    assert len(server.asked) == 2


def test_the_data_folder_goes_first_and_is_checked(cache, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    (folder / "some").mkdir(parents=True)
    (folder / "some" / "file.mat").write_bytes(BODY)
    monkeypatch.setenv("MSSL_DATA", str(folder))
    assert _fetch.fetch_file(known()) == folder / "some" / "file.mat"
    with pytest.raises(DatasetError, match="not the file this data set needs"):
        _fetch.fetch_file(known(b"something else"))
    monkeypatch.setenv("MSSL_DATA", str(folder / "nowhere"))
    with pytest.raises(DatasetError, match=r"MSSL_DATA is .*; give a folder"):
        _fetch.fetch_file(known())


def test_without_pooch_the_extra_is_named(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingDependencyError, match=r"mssl\[data\]"):
        _fetch.fetch_file(known(urls=("http://127.0.0.1:9/file",)))
    assert files_below(cache) == []


def test_a_file_without_address_says_where_it_comes_from(cache):
    with pytest.raises(DatasetError, match="IPCC-WG1/Atlas") as caught:
        datasets.load_climate("atlas")
    assert "MSSL_DATA" in str(caught.value)


def test_git_blob_digest_is_gits():
    # `printf 'hello\n' | git hash-object --stdin`
    assert _fetch.digest(b"hello\n", "git-blob-sha1") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_unpacked_digest_does_not_depend_on_the_packing():
    digests = {
        _fetch.digest(form, "sha256-unpacked")
        for form in (BODY, gzip.compress(BODY, 1, mtime=1), gzip.compress(BODY, 9, mtime=2))
    }
    assert digests == {hashlib.sha256(BODY).hexdigest()}


@pytest.mark.parametrize(
    ("platform", "variable", "value", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "/somewhere", Path("/somewhere/mssl")),
        ("darwin", "HOME", "/home/anna", Path("/home/anna/Library/Caches/mssl")),
        ("win32", "LOCALAPPDATA", "/local", Path("/local/mssl/Cache")),
    ],
)
def test_the_cache_is_where_the_platform_wants_it(monkeypatch, platform, variable, value, expected):
    monkeypatch.delenv("MSSL_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, value)
    assert _fetch.cache_folder() == expected


@needs_data
@pooch_only
def test_a_registered_file_travels_from_a_mirror_to_a_loader(server, cache):
    file = _fetch.info("landmine").files[0]
    server.bodies["/" + file.path] = (Path(DATA) / file.path).read_bytes()
    assert datasets.fetch("landmine", base_url=server.url) == [cache / file.path]
    assert datasets.load_landmine().X.shape == (9674, 9)
