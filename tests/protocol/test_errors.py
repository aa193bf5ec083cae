from protocol.errors import ErrorCode, KafkaError


def test_error_codes_are_dense_and_have_messages() -> None:
    assert [code.value for code in sorted(ErrorCode)] == list(range(-1, 134))
    assert all(code.message.endswith(".") for code in ErrorCode)


def test_retriable_error_codes_are_marked() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.UNKNOWN_SERVER_ERROR.retriable
    assert sum(code.retriable for code in ErrorCode) == 32


def test_kafka_error_has_a_code_and_a_message() -> None:
    assert KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms is no number").message == "retention.ms is no number"
    assert KafkaError(ErrorCode.INVALID_CONFIG).message == ErrorCode.INVALID_CONFIG.message
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "why")) == "INVALID_CONFIG: why"
