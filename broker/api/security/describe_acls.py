"""DescribeAcls (key 29), versions 1-3: the access control entries that match a filter, by resource (KIP-140)."""

from broker.api.pipeline.authorization import Authorizer, require_authorizer
from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource
from broker.metadata.controller.acl_filter import AclFilter
from protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class DescribeAclsHandler:
    """Answers DescribeAcls from the published image."""

    def __init__(self, metadata: MetadataSource, authorizer: Authorizer | None) -> None:
        self._metadata = metadata
        self._authorizer = authorizer

    def __call__(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        require_authorizer(self._authorizer)
        wanted = AclFilter.checked(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
        resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
        for entry in sorted(entry for _, entry in wanted.find(self._metadata.image.acls)):
            pattern = entry[:3]
            resource = resources.setdefault(pattern, DescribeAclsResource(*pattern))
            resource.acls.append(AclDescription(*entry[3:]))
        return DescribeAclsResponse(resources=list(resources.values()))
