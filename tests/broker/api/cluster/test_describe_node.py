"""DescribeNode: topics and share groups that the principal may not describe are left out."""

from broker.api.cluster.describe_node import DescribeNodeHandler
from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.api.serving.context import RequestContext
from broker.net.request import ConnectionInfo, Request
from protocol.api_keys import ApiKey
from protocol.headers import RequestHeader
from protocol.messages.describe_node import DescribedTopic, DescribeNodeRequest, DescribeNodeResponse
from tests.support.fakes.fake_authorizer import GrantedPermissions

BOB = "User:bob"
CLIENT = ConnectionInfo("c", "PLAINTEXT", "127.0.0.1", 1, principal=BOB)
REQUEST = Request(RequestHeader(ApiKey.DESCRIBE_NODE, 0, 1, "console"), memoryview(b""), CLIENT, 0)


class Node:
    """Notes what it is asked to describe."""

    def __init__(self) -> None:
        self.asked: list[DescribeNodeRequest] = []

    async def describe(self, request: DescribeNodeRequest) -> DescribeNodeResponse:
        self.asked.append(request)
        return DescribeNodeResponse(node_id=7)


async def described(authorizer: GrantedPermissions | None) -> DescribeNodeRequest:
    node = Node()
    request = DescribeNodeRequest(topics=[DescribedTopic("a", [0]), DescribedTopic("b", [1])], share_group="queue")
    answer = await DescribeNodeHandler(node)(request, RequestContext(0, "console", CLIENT, REQUEST, authorizer))
    assert answer.node_id == 7
    return node.asked[0]


async def test_everything_is_described_without_authorizer() -> None:
    request = await described(None)
    assert ([topic.name for topic in request.topics], request.share_group) == (["a", "b"], "queue")


async def test_only_what_the_principal_may_describe_is_described() -> None:
    request = await described(GrantedPermissions([(BOB, AclOperation.DESCRIBE, AclResourceType.TOPIC, "b")]))
    assert ([topic.name for topic in request.topics], request.share_group) == (["b"], None)
    request = await described(GrantedPermissions([(BOB, AclOperation.DESCRIBE, AclResourceType.GROUP, "queue")]))
    assert (request.topics, request.share_group) == ([], "queue")
