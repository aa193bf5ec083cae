"""Settings of an S3 bucket: the keys under `storage.s3.` and `storage.aws.`, as values.

A field has the name of its key: `multipart_upload_part_size` is `storage.s3.multipart.upload.part.size`.
"""

from dataclasses import field

from protocol.lazy_dataclass import lazy_dataclass

MIN_PART_BYTES = 5 * 1024 * 1024
"""Minimum size of a part in S3, except for the last of an upload."""

MAX_PART_BYTES = 2**31 - 1

_ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")

PROVIDER_METHODS = {
    "DefaultCredentialsProvider": None,
    "AwsCredentialsProviderChain": None,
    "AnonymousCredentialsProvider": (),
    "EnvironmentVariableCredentialsProvider": ("env",),
    "ProfileCredentialsProvider": ("shared-credentials-file", "config-file", "assume-role", "sso", "custom-process"),
    "WebIdentityTokenFileCredentialsProvider": ("assume-role-with-web-identity",),
    "ContainerCredentialsProvider": ("container-role",),
    "InstanceProfileCredentialsProvider": ("iam-role",),
}
"""Providers of the AWS SDK for Java, and the providers of the Python SDK with the same function. None: all, in the
usual order; an empty tuple: unsigned requests.
"""


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Settings of a bucket. Times are in milliseconds, sizes in bytes. Raises ValueError, one sentence with the key."""

    bucket_name: str
    region: str | None
    """None: the region that the SDK finds in the environment or its files."""
    endpoint_url: str | None = None
    path_style_access_enabled: bool | None = None
    """None: virtual hosts for AWS, paths for another endpoint."""
    multipart_upload_part_size: int = 25 * 1024 * 1024
    """Memory used by a put."""
    storage_class: str | None = None
    server_side_encryption: str | None = None
    server_side_encryption_kms_key_id: str | None = None
    api_call_timeout: int | None = None
    """Limit for a request with all its attempts; None: only their number is limited."""
    api_call_attempt_timeout: int | None = None
    """Limit for a silence of the server within one attempt."""
    legacy_md5_plugin_enabled: bool = False
    """Send deletions with Content-MD5, for servers without newer checksums."""
    max_attempts: int = 4
    max_connections: int = 64

    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    credentials_file: str | None = None
    """A properties file with `aws.access.key.id` and the other keys, read again when it changes."""
    credentials_provider_class: str | None = None
    checksum_check_enabled: bool = False
    certificate_check_enabled: bool = True

    def __post_init__(self) -> None:
        for refusal in (self._refuse_shape(), self._refuse_limits(), self._refuse_credentials()):
            if refusal:
                raise ValueError(refusal)

    def _refuse_shape(self) -> str | None:
        if not self.bucket_name:
            return "storage.s3.bucket.name must not be empty"
        if self.region == "":
            return "storage.s3.region must not be empty"
        if self.server_side_encryption not in (None, *_ENCRYPTIONS):
            return f"storage.s3.server.side.encryption must be one of {', '.join(_ENCRYPTIONS)}"
        if self.server_side_encryption_kms_key_id and self.server_side_encryption in (None, "AES256"):
            return "storage.s3.server.side.encryption.kms.key.id needs storage.s3.server.side.encryption=aws:kms"
        return None

    def _refuse_limits(self) -> str | None:
        if not MIN_PART_BYTES <= self.multipart_upload_part_size <= MAX_PART_BYTES:
            return f"storage.s3.multipart.upload.part.size must be between {MIN_PART_BYTES} and {MAX_PART_BYTES}"
        limits = {
            "api.call.timeout": self.api_call_timeout,
            "api.call.attempt.timeout": self.api_call_attempt_timeout,
            "max.attempts": self.max_attempts,
            "max.connections": self.max_connections,
        }
        too_small = [key for key, value in limits.items() if value is not None and value < 1]
        return f"storage.s3.{too_small[0]} must be at least 1" if too_small else None

    def _refuse_credentials(self) -> str | None:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            return "storage.aws.access.key.id and storage.aws.secret.access.key must be set together"
        if self.session_token is not None and self.access_key_id is None:
            return "storage.aws.session.token needs storage.aws.access.key.id"
        sources = (self.access_key_id, self.credentials_file, self.credentials_provider_class)
        if len([source for source in sources if source is not None]) > 1:
            return (
                "only one of storage.aws.access.key.id, storage.aws.credentials.file "
                "and storage.aws.credentials.provider.class may be set"
            )
        if self.credentials_provider_class is not None and self._provider_name not in PROVIDER_METHODS:
            return f"storage.aws.credentials.provider.class must be one of {', '.join(PROVIDER_METHODS)}"
        return None

    @property
    def _provider_name(self) -> str:
        return (self.credentials_provider_class or "").rpartition(".")[2]

    @property
    def provider_methods(self) -> tuple[str, ...] | None:
        """Credential providers of the Python SDK; None for the usual chain."""
        return PROVIDER_METHODS[self._provider_name] if self.credentials_provider_class is not None else None
