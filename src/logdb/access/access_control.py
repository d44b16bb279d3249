"""Access control between doors and the broker: principals, ACLs, quotas, the audit log.

    security.json  authentication
    absent         off: every request is the anonymous principal's, and is authorized
    present        on: what no ACL allows is denied
    damaged        an access control cannot be made; a running one keeps what it read last (nothing read yet: it denies everything)
    removed        a running access control keeps what it read last

A damaged and a removed file are logged.

A change by ``security_document.change`` is in effect when the call returns; a file that was replaced otherwise, after ``LOOK_MS``.

Threading: any number of threads.  ``authenticate_password`` hashes, and waits for other logins: call it off an event loop, in a few
threads of its own, so that a flood of passwords delays only logins.
"""

import hmac
import logging
from collections.abc import Iterable
from typing import Literal

from logdb.access import security_document
from logdb.access.acls import Authorizer
from logdb.access.audit import Audit
from logdb.access.authentication import OF_THE_CLUSTER, Authentication, AuthenticationOff, ClusterToken, Credential, Identity
from logdb.access.partition_limits import PartitionLimits, Partitions
from logdb.access.quotas import Quotas
from logdb.access.security_document import Security
from logdb.access.session import AuthorizedSession
from logdb.broker.async_waiting import Waits
from logdb.broker.broker import Broker
from logdb.broker.metrics import Metrics
from logdb.broker.watch import Signals
from logdb.errors import AuthenticationFailed, LogdbError
from logdb.model import TopicInfo
from logdb.requests.nodes import PartitionState
from logdb.requests.principals import CLUSTER_NODE, Principal
from logdb.requests.resources import Operation, ResourceType
from logdb.requests.users import Mechanism, ScramCredential
from logdb.store.directories import close_to_others
from logdb.store.protocols import ReadableMetadata, SecurityDocument

logger = logging.getLogger(__name__)


class AccessControl:
    """One for each broker, shared by all doors.

    Attributes:
        metrics: Counters of requests and refusals.
        quotas: The token buckets of principals.
        change_count: Number of changes of users, tokens and ACLs that this access control has read.
        partitions: The limits on partitions that principals create.
        replication, appends_at_once, is_at_end: See ``Broker``.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        super_users: Iterable[Principal] = (),
        authentication: bool = False,
        cluster_token: str | None = None,
        partition_limits: PartitionLimits = PartitionLimits(),  # noqa: B008 -- it does not change
    ) -> None:
        """Read ``security.json`` of the broker's directory, if it is there.

        Args:
            super_users: Principals that are super users, beside those that the file names.
            authentication: On, even without the file (clients authenticate by certificates).
            cluster_token: That of the other nodes of a cluster; None: this is no node of one.
            partition_limits: Bounds on the partitions that principals create.

        Raises:
            CorruptionError, UnsupportedFormat, ReadFailed: The file cannot be read.
        """
        self.replication = broker.replication
        self.metadata: ReadableMetadata = broker.metadata  # of all topics, those too that no principal may describe
        self.appends_at_once, self.is_at_end = broker.appends_at_once, broker.is_at_end
        self._broker, self._super_users, self._required = broker, frozenset((*super_users, CLUSTER_NODE)), authentication
        self._cluster_token = cluster_token and cluster_token.encode()
        self._file = self.security.follow(self._take)
        self._authentication = Authentication(broker.io)
        self._audit = Audit(broker.io.monotonic_ms)
        self._authorizer: Authorizer | None = None  # None: authentication is off
        self._trouble = ""  # why the file could not be read the last time; logged once
        self.change_count = 0
        self.metrics, self.quotas, self.partitions = Metrics(), Quotas(broker.io.monotonic_ms), Partitions(partition_limits)
        self._file.refresh()
        if self._file.is_there:
            close_to_others(broker.io, broker.directory)  # older versions did not when they wrote the file

    @property
    def directory(self) -> str:
        """The directory of the database."""
        return self._broker.directory

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def security(self) -> SecurityDocument:
        """Users, tokens, ACLs and quotas of the database."""
        return self._broker.metadata.security

    @property
    def is_replicated(self) -> bool:
        """Whether this node is one of a cluster."""
        return self._broker.is_replicated

    def placement(self, info: TopicInfo) -> list[PartitionState]:
        """Who has the partitions of a topic, which a session has described; a single node may leave out epochs."""
        return self._broker.placement(info)

    def coordinator(self, internal_topic: str, name: str) -> int | None:
        """The node that coordinates a group or a transactional id; None: no node does now.  May wait for a disk, in a cluster."""
        return self._broker.coordinator(internal_topic, name)

    @property
    def topic_signals(self) -> Signals:
        """Signals that are set when a topic is created, altered or deleted; a session filters the topics by its principal."""
        return self._broker.events.signals

    @property
    def topic_change_count(self) -> int:
        """How often a topic was created, altered or deleted, as far as this process knows."""
        return self._broker.events.count

    def topics(self) -> list[TopicInfo]:
        """All topics, also internal ones and those that no principal may describe; may wait for a disk."""
        return self._broker.topics(internal=True)

    def waits(self) -> Waits:
        """The waits for records on the running event loop; a session authorizes the reads."""
        return self._broker.waits()

    # ------------------------------------------------------------ the file

    def _take(self, data: bytes | None) -> None:
        """Take over the document; raises CorruptionError, UnsupportedFormat."""
        content = None if data is None else security_document.decode(data, self.security.name)
        self._trouble = ""
        if content is None and self._authorizer is not None:
            logger.error("%s was removed; the users and ACLs that were read before stay in force", self.security.name)
            return
        if content is None and not self._required:
            return
        content = content or Security()
        self._authentication.configure(content)
        super_users = content.super_users | self._super_users
        self.quotas.configure(content.quotas, super_users)
        self._authorizer = Authorizer(content.acls, super_users)
        self.change_count += 1  # last: what a session remembers of a count was asked of these ACLs

    def refresh(self) -> None:
        """Read the file again if it was replaced."""
        try:
            self._file.refresh()
        except LogdbError as error:
            if self._trouble == str(error):
                return  # logged already
            self._trouble = str(error)
            if self._authorizer is None:
                logger.error("%s; every request is denied", error)
                self._authorizer = Authorizer(super_users=self._super_users)
                self.change_count += 1
            else:
                logger.error("%s; the users and ACLs that were read before stay in force", error)

    # ------------------------------------------------------------ who

    @property
    def authentication(self) -> bool:
        """Whether authentication is on."""
        self.refresh()
        return self._authorizer is not None

    def authenticate_password(self, user: str, password: str, host: str) -> Identity:
        """Authenticate a user by password.  Hashes, unless the password was right a moment ago, and may wait for other logins.

        Args:
            host: The address of the client; failed tries of an address delay its next.

        Raises:
            AuthenticationFailed: No user has this name and password, or the address has to wait.
        """
        self.refresh()
        try:
            return self._authentication.password(user, password, host)
        except AuthenticationFailed as error:
            self.not_authenticated(host, user, error)
            raise

    def remembered(self, user: str, password: str) -> Identity | None:
        """As ``authenticate_password``, without hashing; None unless the password was right a moment ago.  For an event loop."""
        self.refresh()
        return self._authentication.remembered(user, password)

    def cluster_node(self, token: str) -> Identity | None:
        """The identity of another node of this cluster, by its token, also while authentication is off; None: it is another token."""
        known = self._cluster_token
        return OF_THE_CLUSTER if known and hmac.compare_digest(token.encode(errors="replace"), known) else None

    def owner(self, token: str) -> Identity | None:
        """The owner of a token; None for an unknown or expired one, without a line in the audit log."""
        self.refresh()
        return self._authentication.owner(token)

    def authenticate_token(self, token: str, host: str) -> Identity:
        """The owner of a token.

        Raises:
            AuthenticationFailed: The token is unknown, or has expired.
        """
        self.refresh()
        try:
            return self._authentication.token(token)
        except AuthenticationFailed as error:
            self.not_authenticated(host, None, error)
            raise

    def scram_credential(self, user: str, mechanism: Mechanism) -> ScramCredential:
        """What to check a user's proof against (RFC 5802); for an unknown user, a credential that no proof fits."""
        self.refresh()
        return self._authentication.credential(user, mechanism)

    def authenticate_proof(
        self, user: str, mechanism: Mechanism, credential: ScramCredential, auth_message: bytes, proof: bytes, host: str
    ) -> Identity:
        """Who proves by SCRAM (RFC 5802 §3) that they have the password of ``credential``, which ``scram_credential`` gave; may wait.

        Raises:
            AuthenticationFailed: The proof is wrong, the credential is no longer the user's, or the address has to wait.
        """
        self.refresh()
        try:
            return self._authentication.proof(user, mechanism, credential, auth_message, proof, host)
        except AuthenticationFailed as error:
            self.not_authenticated(host, user, error)
            raise

    def not_authenticated(self, host: str, user: str | None, error: AuthenticationFailed) -> None:
        """Audit a failed authentication; ``user`` is None where the client gave no name (a token)."""
        self.metrics.failed_authentication()
        self._audit.not_authenticated(host, user, str(error))

    # ------------------------------------------------------------ what

    def session(self, principal: Principal, host: str, credential: Credential | None = None) -> AuthorizedSession:
        """A session of ``principal``, for one request of a door, which is counted.

        Args:
            host: The address of the client.
            credential: The credential that authenticated it, and must stay valid; None: it cannot become invalid.

        Raises:
            AuthenticationFailed: A user has the name of the cluster's nodes.
        """
        if principal == CLUSTER_NODE and not isinstance(credential, ClusterToken):
            raise AuthenticationFailed(f"{principal} are the nodes of a cluster: a user of this name cannot log in")
        self.refresh()
        self.metrics.request()
        return AuthorizedSession(self, self._broker, principal, host, credential)

    def is_valid(self, principal: Principal, credential: Credential) -> bool:
        """Whether a credential still authenticates a principal."""
        self.refresh()
        if isinstance(credential, ClusterToken):
            return True
        if isinstance(credential, AuthenticationOff):
            return self._authorizer is None
        return self._authentication.is_valid(principal, credential)

    def allows(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a principal, from the address ``host``, may do an operation on a resource."""
        self.refresh()
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows(principal, host, operation, resource_type, name)

    def allows_some(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether it may do the operation on at least one resource of a type."""
        self.refresh()
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows_some(principal, host, operation, resource_type)

    def is_super_user(self, principal: Principal) -> bool:
        """Whether a principal is a super user: ACLs do not bind it."""
        self.refresh()
        authorizer = self._authorizer
        return authorizer is None or authorizer.is_super_user(principal)

    def changed(self, principal: Principal, host: str, change: str, of: str) -> None:
        """Audit a change of users, tokens, ACLs or quotas."""
        self._audit.changed(principal, host, change, of)

    def refused(
        self, principal: Principal, host: str, operation: Operation, resource_type: "ResourceType | Literal['User']", name: str
    ) -> None:
        """Audit a denied operation."""
        self.metrics.refused()
        self._audit.refused(principal, host, operation, resource_type, name)
