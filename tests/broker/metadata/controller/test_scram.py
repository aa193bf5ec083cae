"""AlterUserScramCredentials, and the keys of RFC 5802 (KIP-554)."""

import base64
import hashlib
from collections.abc import Sequence

import pytest

from broker.metadata.controller.scram import scram_keys
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.security_image import ScramCredential, ScramMechanism
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.broker.metadata.images import Cluster

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")  # the example of RFC 7677
SALTED = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)


def upsertion(
    user: str = "u", mechanism: int = SHA_256, iterations: int = 4096, salted: bytes = SALTED
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(user, mechanism, iterations, SALT, salted)


def alter(
    cluster: Cluster,
    *upsertions: ScramCredentialUpsertion,
    deletions: Sequence[ScramCredentialDeletion] = (),
) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(list(deletions), list(upsertions))
    response = cluster.write(cluster.controller.alter_scram_credentials(request))
    assert len({each.user for each in response.results}) == len(response.results)
    return {each.user: ErrorCode(each.error_code) for each in response.results}


def test_keys_match_the_rfc_example() -> None:
    stored_key, server_key = scram_keys(SHA_256, SALTED)
    assert base64.b64encode(stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert [len(key) for key in scram_keys(SHA_512, SALTED)] == [64, 64]


def test_credential_is_stored_without_the_password() -> None:
    cluster = Cluster()
    assert alter(cluster, upsertion()) == {"u": ErrorCode.NONE}
    cluster.fail_over()
    assert dict(cluster.image.scram.credentials) == {
        (SHA_256, "u"): ScramCredential(SALT, *scram_keys(SHA_256, SALTED), 4096)
    }


def test_credentials_are_deleted_one_mechanism_at_a_time() -> None:
    cluster = Cluster()
    alter(cluster, upsertion())
    alter(cluster, upsertion(mechanism=SHA_512))
    assert alter(cluster, deletions=[ScramCredentialDeletion("u", SHA_256)]) == {"u": ErrorCode.NONE}
    assert list(cluster.image.scram.credentials) == [(SHA_512, "u")]


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (upsertion(user=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_invalid_credentials_are_refused(requested: ScramCredentialUpsertion, code: ErrorCode) -> None:
    cluster = Cluster()
    assert alter(cluster, upsertion("fine"), requested) == {"fine": ErrorCode.NONE, requested.name: code}
    assert list(cluster.image.scram.credentials) == [(SHA_256, "fine")]


def test_deleting_an_absent_credential_is_refused() -> None:
    assert alter(Cluster(), deletions=[ScramCredentialDeletion("u", SHA_256)]) == {"u": ErrorCode.RESOURCE_NOT_FOUND}
    assert alter(Cluster(), deletions=[ScramCredentialDeletion("u", 0)]) == {"u": ErrorCode.UNSUPPORTED_SASL_MECHANISM}


def test_user_can_be_named_once_across_mechanisms() -> None:
    cluster = Cluster()
    assert alter(cluster, upsertion(), upsertion(mechanism=SHA_512)) == {"u": ErrorCode.DUPLICATE_RESOURCE}
    assert not cluster.image.scram.credentials
    alter(cluster, upsertion())
    deletion = ScramCredentialDeletion("u", SHA_256)
    assert alter(cluster, upsertion(), deletions=[deletion]) == {"u": ErrorCode.DUPLICATE_RESOURCE}
    assert alter(cluster, deletions=[deletion, deletion]) == {"u": ErrorCode.DUPLICATE_RESOURCE}
    assert len(cluster.image.scram.credentials) == 1


def test_older_metadata_version_refuses_credentials() -> None:
    assert alter(Cluster(level=MetadataVersion.IV_3_5_1), upsertion()) == {"u": ErrorCode.UNSUPPORTED_VERSION}
