"""Commands that speak to brokers or straight to the controllers: where they connect, and whom they ask there.

Any broker forwards what only the active controller can answer. A controller does not: with --bootstrap-controller the
active one is looked up first, by DescribeCluster for the endpoints of controllers (KIP-919).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import click

from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import session
from broker.client import Client, Connection, Endpoint, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import Message
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

F = TypeVar("F", bound=Callable[..., object])
R = TypeVar("R", bound=Message)
T = TypeVar("T")

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
"""Endpoint types of DescribeCluster: a listener knows its own alone."""


def target_options(command: F) -> F:
    """--bootstrap-server or --bootstrap-controller, and --command-config, before the action as in Kafka's tools."""
    command = click.option("--command-config", metavar="FILE", type=click.Path(), help="Properties of the client.")(
        command
    )
    command = click.option(
        "--bootstrap-controller", metavar="HOST:PORT[,…]", help="Any controllers of the cluster, in place of brokers."
    )(command)
    return click.option(
        "--bootstrap-server", metavar="HOST:PORT[,…]", help=f"Any brokers. [default: {DEFAULT_BOOTSTRAP}]"
    )(command)


@dataclass(frozen=True, slots=True)
class Target:
    """What the options before the action said."""

    bootstrap: str
    is_controller: bool
    command_config: str | None

    @classmethod
    def of(cls, server: str | None, controller: str | None, command_config: str | None) -> "Target":
        """Raises UsageError if both are named."""
        if server is not None and controller is not None:
            raise click.UsageError("--bootstrap-server and --bootstrap-controller exclude each other.")
        bootstrap = controller or server or DEFAULT_BOOTSTRAP
        return cls(bootstrap, controller is not None, command_config)

    @contextmanager
    def open(self, overrides: Mapping[str, str] | None = None) -> Iterator["AdminClient"]:
        """Connect for the length of a command."""
        with session(self.bootstrap, self.command_config, overrides) as client:
            yield AdminClient(client, self.is_controller)


class AdminClient:
    """The cluster, reached through brokers or controllers."""

    def __init__(self, client: Client, is_controller: bool) -> None:
        self.client = client
        self._is_controller = is_controller

    def retrying(self, attempt: Callable[[], T]) -> T:
        """As `Client.retrying`; an operation that is still under way is waited for, too."""
        return self.client.retrying(attempt, frozenset({ErrorCode.REQUEST_TIMED_OUT}))

    def call(self, request: Message, response_type: type[R]) -> R:
        """Asks any broker, or the active controller."""
        if not self._is_controller:
            return self.client.call(request, response_type)
        connection = self._active_controller()
        try:
            return connection.call(request, response_type)
        finally:
            connection.close()

    def cluster_id(self) -> str:
        """Raises KafkaError."""
        return self._describe_cluster().cluster_id

    def _describe_cluster(self) -> DescribeClusterResponse:
        request = DescribeClusterRequest(endpoint_type=_CONTROLLERS if self._is_controller else _BROKERS)
        answer = self.client.call(request, DescribeClusterResponse)
        raise_for(answer.error_code, "the cluster", answer.error_message)
        return answer

    def _active_controller(self) -> Connection:
        """Raises KafkaError NOT_CONTROLLER while there is none."""
        answer = self._describe_cluster()
        for node in answer.brokers:
            if node.broker_id == answer.controller_id:
                return Connection.open(Endpoint(node.host, node.port), self.client.config)
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no active controller.")
