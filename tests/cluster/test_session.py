"""Ray as we start it."""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import pytest
import ray

from equifl.cluster.session import require_head
from equifl.cluster.workers import worker
from torture.ray_nodes import family, free_port


def sockets(pid: int) -> Iterator[str]:
    """By their inodes."""
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            name = str(file.readlink())
            if name.startswith("socket:["):
                yield name[8:-1]
    except OSError:
        return


def listening() -> dict[str, str]:
    """The local address of every listening TCP socket of this machine, by inode."""
    found = {}
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            words = fields[1].partition(":")[0]
            packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
            if fields[3] == "0A":
                kind = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
                found[fields[9]] = socket.inet_ntop(kind, packed)
    return found


def is_loopback(address: str) -> bool:
    """Also of an IPv4 address in the clothes of IPv6.

    >>> [is_loopback(a) for a in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "::ffff:192.0.2.2")]
    [True, True, True, False, False, False]
    """
    parsed = ip_address(address)
    inner = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (inner or parsed).is_loopback


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_ray_that_we_start_listens_on_the_loopback_interface_alone() -> None:
    ray.get(worker(0).process.remote())
    addresses = listening()
    ours = {pid: [addresses[s] for s in sockets(pid) if s in addresses] for pid in family(os.getpid())}
    heard = [address for found in ours.values() for address in found]
    assert len(heard) >= 3, f"the controller, the node and the worker listen somewhere: {ours}"
    for pid, found in ours.items():
        outside = [address for address in found if not is_loopback(address)]
        assert not outside, f"{Path(f'/proc/{pid}/cmdline').read_bytes()[:60]!r} listens on {outside}"


def test_an_address_where_nobody_answers_is_refused_in_one_sentence() -> None:
    """Also by the same command, given before the new head is up."""
    port = free_port()
    with pytest.raises(ConnectionError, match=f"^ray: no head of a cluster answers at 127.0.0.1:{port}; start it, or"):
        require_head(f"127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", port)):
        require_head(f"localhost:{port}")
    require_head("auto")  # of which Ray knows the address
