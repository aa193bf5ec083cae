"""Connections of commands that administer the cluster through brokers or directly through controllers.

Brokers forward requests to the active controller; controllers do not. With --bootstrap-controller, DescribeCluster for
controller endpoints finds the active controller first (KIP-919).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

import click

from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import session
from broker.client import Client, Connection, Endpoint, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

F = TypeVar("F", bound=Callable[..., object])
R = TypeVar("R", bound=Message)
T = TypeVar("T")

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
"""Endpoint types of DescribeCluster: a listener reports endpoints of its own type only."""


def target_options(command: F) -> F:
    """Add --bootstrap-server, --bootstrap-controller and --command-config, before the action as in Kafka's tools."""
    command = click.option("--command-config", metavar="FILE", type=click.Path(), help="Properties of the client.")(
        command
    )
    command = click.option(
        "--bootstrap-controller",
        metavar="HOST:PORT[,…]",
        help="One or more controllers of the cluster, instead of brokers.",
    )(command)
    return click.option(
        "--bootstrap-server",
        metavar="HOST:PORT[,…]",
        help=f"One or more brokers of the cluster. [default: {DEFAULT_BOOTSTRAP}]",
    )(command)


@lazy_dataclass(frozen=True, slots=True)
class Target:
    """The bootstrap servers and client configuration given before the action."""

    bootstrap: str
    is_controller: bool
    command_config: str | None

    @classmethod
    def of(cls, server: str | None, controller: str | None, command_config: str | None) -> "Target":
        """Build the target. Raises UsageError if both kinds of servers are given."""
        if server is not None and controller is not None:
            raise click.UsageError("--bootstrap-server and --bootstrap-controller exclude each other.")
        bootstrap = controller or server or DEFAULT_BOOTSTRAP
        return cls(bootstrap, controller is not None, command_config)

    @contextmanager
    def open(self, overrides: Mapping[str, str] | None = None) -> Iterator["AdminClient"]:
        """Connect for the duration of a command."""
        with session(self.bootstrap, self.command_config, overrides) as client:
            yield AdminClient(client, self.is_controller)


class AdminClient:
    """A client of the cluster, connected through brokers or controllers."""

    def __init__(self, client: Client, is_controller: bool) -> None:
        self.client = client
        self.is_controller = is_controller

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Like `Client.retrying`; also retry operations that are still in progress."""
        return self.client.retrying(attempt, frozenset({ErrorCode.REQUEST_TIMED_OUT}))

    def call(self, request: Message, response_type: type[R]) -> R:
        """Send the request to any broker, or to the active controller, and return the response."""
        if not self.is_controller:
            return self.client.call(request, response_type)
        connection = self._active_controller()
        try:
            return connection.call(request, response_type)
        finally:
            connection.close()

    def call_node(self, node_id: int, request: Message, response_type: type[R]) -> R:
        """Send the request to one node, by its endpoint of the target's kind. Raises KafkaError for an absent node."""
        if not self.is_controller:
            return self.client.node(node_id).call(request, response_type)
        for node in self.endpoints():
            if node.broker_id == node_id:
                connection = Connection.open(Endpoint(node.host, node.port), self.client.config)
                try:
                    return connection.call(request, response_type)
                finally:
                    connection.close()
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is no controller; use --bootstrap-server.")

    def cluster_id(self) -> str:
        """Return the cluster id. Raises KafkaError."""
        return self._describe_cluster().cluster_id

    def endpoints(self, *, include_fenced: bool = False) -> list[DescribeClusterBroker]:
        """Return the brokers, or the controllers, with their endpoints. Raises KafkaError or ClientError."""
        return self._describe_cluster(include_fenced=include_fenced).brokers

    def _describe_cluster(self, *, include_fenced: bool = False) -> DescribeClusterResponse:
        kind = _CONTROLLERS if self.is_controller else _BROKERS
        request = DescribeClusterRequest(endpoint_type=kind, include_fenced_brokers=include_fenced)
        answer = self.client.call(request, DescribeClusterResponse)
        raise_for(answer.error_code, "the cluster", answer.error_message)
        return answer

    def _active_controller(self) -> Connection:
        """Connect to the active controller. Raises KafkaError NOT_CONTROLLER if there is none."""
        answer = self._describe_cluster()
        for node in answer.brokers:
            if node.broker_id == answer.controller_id:
                return Connection.open(Endpoint(node.host, node.port), self.client.config)
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no active controller.")
