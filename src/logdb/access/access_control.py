"""What stands between doors and the broker: who somebody is, what they may do, what they did.

Knows principals, ACLs, quotas, counters and the file that they are kept in.  Does not know how a door is told who asks, nor any
protocol.

    file           authentication
    none           off: whoever comes may do anything
    there          on: who is allowed nothing may do nothing
    damaged        no access control is made; one that is there goes on with what it read last (nothing: nobody may do anything)
    removed        one that is there goes on with what it read last

The last two are said in the log.

A change of the file counts once ``security_file.change`` returns; made otherwise, from ``LOOK_MS`` on.

Threading: any number of threads.  ``authenticate_password`` hashes, and waits for others that do: call it off an event loop, in a
few threads that nothing else needs, so that a flood of passwords holds up no one but those who log in.
"""

import logging
from collections.abc import Iterable
from typing import Literal

from logdb.access import security_file
from logdb.access.acls import Authorizer
from logdb.access.audit import Audit
from logdb.access.authentication import Authentication, AuthenticationOff, Credential, Identity
from logdb.access.credentials import Mechanism, ScramCredential
from logdb.access.partition_limits import PartitionLimits, Partitions
from logdb.access.principals import Principal
from logdb.access.quotas import Quotas
from logdb.access.security_file import Security
from logdb.access.session import AuthorizedSession
from logdb.broker.async_waiting import Waits
from logdb.broker.broker import Broker
from logdb.broker.metrics import Metrics
from logdb.broker.watch import Signals
from logdb.errors import AuthenticationFailed, LogdbError
from logdb.model import Durability
from logdb.requests.resources import Operation, ResourceType
from logdb.store.directories import is_private, make_private

logger = logging.getLogger(__name__)


class AccessControl:
    """One for each broker, shared by all doors.

    Attributes:
        metrics: What is counted.
        quotas: What is charged.
        change_count: How often users, tokens and ACLs were another set.
        partitions: What may be made.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        super_users: Iterable[Principal] = (),
        authentication: bool = False,
        partition_limits: PartitionLimits = PartitionLimits(),  # noqa: B008 -- it does not change
    ) -> None:
        """Read ``security.json`` of the broker's directory, if it is there.

        Args:
            super_users: May do anything, beside those that the file names.
            authentication: On, even without the file (where certificates say who somebody is).
            partition_limits: How many partitions may be made.

        Raises:
            CorruptionError, UnsupportedFormat, ReadFailed: The file cannot be read: nobody knows who may do what.
        """
        self._broker, self._super_users, self._required = broker, frozenset(super_users), authentication
        self._file = security_file.Watched(broker.io, broker.directory, self._take)
        self._authentication = Authentication(broker.io)
        self._audit = Audit(broker.io.monotonic_ms)
        self._authorizer: Authorizer | None = None  # None: whoever comes may do anything
        self._trouble = ""  # why the file could not be read the last time; said once
        self.change_count = 0
        self.metrics, self.quotas, self.partitions = Metrics(), Quotas(broker.io.monotonic_ms), Partitions(partition_limits)
        self._file.refresh()
        if self._file.is_there:
            self._close_to_others()

    def _close_to_others(self) -> None:
        """Make a directory its owner's only that was secured before changes of the file did so."""
        io, directory = self._broker.io, self._broker.directory
        try:
            if not is_private(io, directory):
                make_private(io, directory)
        except LogdbError as error:
            logger.warning("%s may be read by others on this machine: %s", directory, error)

    @property
    def directory(self) -> str:
        """Where the database is."""
        return self._broker.directory

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    @property
    def database_id(self) -> str:
        """A UUID that the database has from its begin; doors name their cluster by it."""
        return self._broker.database_id

    @property
    def node_id(self) -> int:
        """Of this node."""
        return self._broker.node_id

    @property
    def topic_signals(self) -> Signals:
        """What is set when something becomes of a topic; of which, a session says whose principal may know."""
        return self._broker.events.signals

    def waits(self) -> Waits:
        """What waits for records on the running event loop; whether somebody may read them, their session says."""
        return self._broker.waits()

    def appends_at_once(self, topic: str, partition: int, durability: Durability | None = None) -> bool:
        """Whether an append waits for no disk, so that it may be made on an event loop."""
        return self._broker.appends_at_once(topic, partition, durability)

    # ------------------------------------------------------------ the file

    def _take(self, content: Security | None) -> None:
        """Go by what the file holds now."""
        self._trouble = ""
        if content is None and self._authorizer is not None:
            logger.error("%s was removed; what was read before still counts", self._file.path)
            return
        if content is None and not self._required:
            return
        content = content or Security()
        self._authentication.configure(content)
        self.change_count += 1
        super_users = content.super_users | self._super_users
        self.quotas.configure(content.quotas, super_users)
        self._authorizer = Authorizer(content.acls, super_users)

    def _refresh(self) -> None:
        """Read the file again if it is another one."""
        try:
            self._file.refresh()
        except LogdbError as error:
            if self._trouble == str(error):
                return  # said already
            self._trouble = str(error)
            if self._authorizer is None:
                logger.error("%s; nobody may do anything", error)
                self.change_count += 1
                self._authorizer = Authorizer(super_users=self._super_users)
            else:
                logger.error("%s; what was read before still counts", error)

    # ------------------------------------------------------------ who

    @property
    def authentication(self) -> bool:
        """Whether somebody has to say who they are to be allowed anything."""
        self._refresh()
        return self._authorizer is not None

    def authenticate_password(self, user: str, password: str, host: str) -> Identity:
        """Who has this name and password.  Hashes, unless they were right a moment ago, and may wait for others.

        Args:
            host: The address that it came from: each may try only so often.

        Raises:
            AuthenticationFailed: Nobody has, or the address has to wait.
        """
        self._refresh()
        try:
            return self._authentication.password(user, password, host)
        except AuthenticationFailed as error:
            self.not_authenticated(host, user, error)
            raise

    def remembered(self, user: str, password: str) -> Identity | None:
        """Who has this name and password, if they were right a moment ago: for an event loop, before it has them hashed."""
        self._refresh()
        return self._authentication.remembered(user, password)

    def owner(self, token: str) -> Identity | None:
        """Whose token it is, if it is anybody's; nothing is noted of one that is not."""
        self._refresh()
        return self._authentication.owner(token)

    def authenticate_token(self, token: str, host: str) -> Identity:
        """Whose token it is.

        Raises:
            AuthenticationFailed: Nobody's, or it has expired.
        """
        self._refresh()
        try:
            return self._authentication.token(token)
        except AuthenticationFailed as error:
            self.not_authenticated(host, None, error)
            raise

    def scram_credential(self, user: str, mechanism: Mechanism) -> ScramCredential:
        """What to check a user's proof against (RFC 5802); of a user that there is not, what no proof fits."""
        self._refresh()
        return self._authentication.credential(user, mechanism)

    def not_authenticated(self, host: str, user: str | None, error: AuthenticationFailed) -> None:
        """Note that somebody could not show who they are; ``user`` is None where they did not even say."""
        self.metrics.failed_authentication()
        self._audit.not_authenticated(host, user, str(error))

    # ------------------------------------------------------------ what

    def session(self, principal: Principal, host: str, credential: Credential | None = None) -> AuthorizedSession:
        """The broker, as far as ``principal`` may use it: for one request of a door, which is counted.

        Args:
            host: The address that it calls from.
            credential: By which it was authenticated, and which has to stay valid; None: it cannot become invalid.
        """
        self._refresh()
        self.metrics.request()
        return AuthorizedSession(self, self._broker, principal, host, credential)

    def is_valid(self, principal: Principal, credential: Credential) -> bool:
        """Whether a credential still authenticates a principal."""
        self._refresh()
        if isinstance(credential, AuthenticationOff):
            return self._authorizer is None
        return self._authentication.is_valid(principal, credential)

    def allows(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a principal that calls from an address may do something with a resource."""
        self._refresh()
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows(principal, host, operation, resource_type, name)

    def allows_some(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether it may do something with some resource of a type."""
        self._refresh()
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows_some(principal, host, operation, resource_type)

    def is_super_user(self, principal: Principal) -> bool:
        """Whether a principal may do anything, whatever the ACLs say."""
        self._refresh()
        authorizer = self._authorizer
        return authorizer is None or authorizer.is_super_user(principal)

    def changed(self, principal: Principal, host: str, change: str, of: str) -> None:
        """Note that somebody changed who there is, or what somebody may do."""
        self._audit.changed(principal, host, change, of)

    def refused(
        self, principal: Principal, host: str, operation: Operation, resource_type: "ResourceType | Literal['User']", name: str
    ) -> None:
        """Note that somebody was not allowed to do something."""
        self.metrics.refused()
        self._audit.refused(principal, host, operation, resource_type, name)
