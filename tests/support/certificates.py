"""Certificates for tests, by an authority that no system trusts."""

import contextlib
import copy
import ssl
from pathlib import Path
from typing import NamedTuple

import trustme


class Files(NamedTuple):
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Issues certificates, each into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ca = folder, trustme.CA()
        self.file = folder / "ca.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self._ca.cert_pem.write_to_path(self.file)

    def server(self, name: str = "server", *hosts: str) -> Files:
        """Of a server at the loopback, or at ``hosts``; written anew if it is there."""
        return self._write(name, self._ca.issue_cert(*(hosts or ("127.0.0.1", "localhost"))))

    def client(self, common_name: str | None, unit: str = "ops") -> Files:
        """Of a client, by its common name; None: without one."""
        issued = self._ca.issue_cert("client@example.org", common_name=common_name, organization_name="Acme", organization_unit_name=unit)
        return self._write(f"client-{common_name}", issued)

    def signing_client(self, name: str) -> "Authority":
        """A client whose certificate may sign others: ``ca.pem`` in its folder is that certificate, ``client`` signs with its key."""
        child = copy.copy(self)
        child._folder, child._ca = self._folder / name, trustme.CA(self._ca, organization_name=name)
        child.file = child._folder / "ca.pem"
        child._folder.mkdir(exist_ok=True)
        child._ca.cert_pem.write_to_path(child.file)
        return child

    def itself(self) -> Files:
        """The certificate of the authority as that of a client."""
        files = Files(self.file, self._folder / "ca.key")
        self._ca.private_key_pem.write_to_path(files.key)
        return files

    def _write(self, name: str, issued: trustme.LeafCert) -> Files:
        files = Files(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        files.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(files.key)
        return files

    def context(self, files: Files | None = None) -> ssl.SSLContext:
        """For a client that trusts the authority, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=self.file)
        if files is not None:
            context.load_cert_chain(*files)
        return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a TLS connection to localhost, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session),
    )
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                waiting.remove(end)
    with contextlib.suppress(ssl.SSLWantReadError):  # the tickets of TLS 1.3
        ends[1].read()
    return ends
