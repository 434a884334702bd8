"""The files of the public data sets: where they are, where they come from, and whether they are whole."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from equifl._numerics.checks import brief, known

Progress: TypeAlias = Callable[[str, int, int | None], None]  # file name, bytes done, bytes in all if known

_TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 2**18


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of one data set, as their publisher made them.

    Args:
        folder: where they lie, in `data_dir` or another of `places`.
        files: the digest of each file, as "algorithm:hexadecimal".
        addresses: what stands before a file's name; the publisher's, then mirrors, but https first.
        download: bytes to download; no more than these are read of any file.
        archive: name and digest of the .tar.gz that is downloaded instead, with the files in `folder` inside.

    >>> SOURCES["heart-disease"].folder, len(SOURCES["heart-disease"].files)
    ('heart-disease', 4)
    """

    folder: str
    files: Mapping[str, str]
    addresses: tuple[str, ...]
    download: int
    archive: tuple[str, str] | None = None


SOURCES: dict[str, Source] = {
    "mnist": Source(
        folder="mnist",
        files={
            "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
        },
        addresses=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        download=11_594_722,
    ),
    "fashion-mnist": Source(
        folder="fashion-mnist",
        files={
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
        addresses=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        download=30_878_645,
    ),
    "cifar10": Source(
        folder="cifar-10-batches-bin",
        files={
            "data_batch_1.bin": "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540",
            "data_batch_2.bin": "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
            "data_batch_3.bin": "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
            "data_batch_4.bin": "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e",
            "data_batch_5.bin": "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628",
            "test_batch.bin": "sha1:67eb016db431130d61cd03c7ad570b013799c88c",
        },
        addresses=(
            "https://www.cs.toronto.edu/~kriz/",
            "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
        ),
        download=170_052_171,
        archive=("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    "heart-disease": Source(
        folder="heart-disease",
        files={
            "processed.cleveland.data": "sha256:a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
            "processed.hungarian.data": "sha256:d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
            "processed.switzerland.data": "sha256:834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
            "processed.va.data": "sha256:e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
        },
        addresses=("https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",),
        download=39_570,
    ),
    "shakespeare": Source(
        folder="shakespeare",
        files={"input.txt": "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
        addresses=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",),
        download=1_115_394,
    ),
}


def places(data_dir: Path | None = None) -> list[Path]:
    """Where files are looked for, in this order: `data_dir`, $EQUIFL_DATA, the user's cache.

    The first is where they are downloaded to.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "equifl"
    named = [data_dir, os.environ.get("EQUIFL_DATA"), cache]
    return [Path(place).expanduser() for place in named if place]


def locate(name: str, data_dir: Path | None = None) -> Path | None:
    """The first folder that has every file of the data set, or None."""
    source = _source(name)
    folders = (place / source.folder for place in places(data_dir))
    return next((folder for folder in folders if not _missing(source, folder)), None)


def get(name: str, data_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """The folder with the files of the data set, downloaded if they are nowhere, every digest checked."""
    source = _source(name)
    folder = locate(name, data_dir)
    if folder is None:
        folder = places(data_dir)[0] / source.folder
        _download(name, source, folder, progress)
    for file, digest in source.files.items():
        if not _matches(folder / file, digest):
            raise ValueError(
                f"{folder / file}: damaged, or another file (its {digest.split(':')[0]} is not the published "
                "one); delete it, and it will be downloaded again"
            )
    return folder


def _source(name: str) -> Source:
    known("data set with files", [name], SOURCES)
    return SOURCES[name]


def _missing(source: Source, folder: Path) -> list[str]:
    return [file for file in source.files if not (folder / file).is_file()]


def _download(name: str, source: Source, folder: Path, progress: Progress | None) -> None:
    """Fill the folder; addresses are the outer loop, so that a dead one costs its time once, not once a file."""
    fetch = _fetch_files if source.archive is None else _fetch_archive
    failures = []
    for address in source.addresses:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fetch(source, address, folder, progress)
            return
        except (OSError, HTTPException, ValueError) as error:  # ValueError: redirected to what is no address
            failures.append(f"{address}: {brief(error)}")
            if isinstance(error, HTTPError):  # which is the open reply, too
                error.close()
    files = ", ".join(_missing(source, folder))
    archive = "" if source.archive is None else f" (they are in {source.archive[0]})"
    raise ValueError(f"{name}: not downloaded ({'; '.join(failures)}); put {files}{archive} into {folder}")


def _fetch_files(source: Source, address: str, folder: Path, progress: Progress | None) -> None:
    for file in _missing(source, folder):
        with _moved_into_place(folder / file, source.files[file]) as part:
            _transfer(address + file, part, source.download, progress)


def _fetch_archive(source: Source, address: str, folder: Path, progress: Progress | None) -> None:
    """Only the wanted members are read, and we name the files: nothing in an archive says where it is put."""
    assert source.archive is not None
    archive, digest = source.archive
    with _temporary(folder / archive) as packed:
        _transfer(address + archive, packed, source.download, progress)
        _require_digest(packed, archive, digest)
        with tarfile.open(packed) as tar:
            for file in _missing(source, folder):
                member = tar.extractfile(f"{source.folder}/{file}")
                assert member is not None  # the archive is the published one, where these are plain files
                with _moved_into_place(folder / file, source.files[file]) as part, member, part.open("wb") as out:
                    shutil.copyfileobj(member, out)


class _WebAlone(HTTPRedirectHandler):
    """Follows redirects to http and https; urllib would follow those to ftp as well."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not re.match("https?://", newurl, re.IGNORECASE):
            raise OSError(f"is redirected to {newurl}; allowed: http and https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _transfer(address: str, to: Path, most: int, progress: Progress | None) -> None:
    request = Request(address, headers={"User-Agent": "equifl"})  # some servers refuse urllib's own
    with build_opener(_WebAlone).open(request, timeout=_TIMEOUT) as response, to.open("wb") as out:
        length = response.headers.get("Content-Length")
        if length and not re.fullmatch("[0-9]{1,18}", length):
            raise OSError(f"has the Content-Length {length}; expected a number of bytes")
        total = int(length) if length else None
        if total is not None and total > most:
            raise OSError(f"has {total} bytes; expected: at most {most}, which all published files have together")
        done = 0
        while block := response.read(min(_BLOCK, most - done)):  # if there is more, the digest will tell
            out.write(block)
            done += len(block)
            if progress is not None:
                progress(address.rpartition("/")[2], done, total)
    if total is not None and done < total:
        raise OSError(f"ended after {done} of {total} bytes")


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A name beside `path` for a file that is gone afterwards, whatever happens."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _moved_into_place(path: Path, digest: str) -> Iterator[Path]:
    """A temporary file that becomes `path` in one step, if it is whole."""
    with _temporary(path) as part:
        yield part
        _require_digest(part, path.name, digest)
        part.replace(path)


def _require_digest(path: Path, name: str, digest: str) -> None:
    if not _matches(path, digest):
        raise OSError(f"what came is not {name} (its {digest.split(':')[0]} is not the published one)")


def _matches(path: Path, digest: str) -> bool:
    algorithm, expected = digest.split(":")
    with path.open("rb") as file:
        # Digests of md5 and sha1 tell a damaged file from a whole one; that is no use of them for security.
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return found.hexdigest() == expected
