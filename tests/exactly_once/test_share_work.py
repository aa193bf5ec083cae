"""The ledger of deliveries and acknowledgements that `make share-work` compares with the records written."""

from tests.exactly_once.share_work import DeliveryLedger


def test_record_delivered_again_before_its_confirmation_is_no_anomaly() -> None:
    ledger = DeliveryLedger()
    for line in ("got 1 0:0,0:1\n", "got 2 0:1\n", "done 3 0:0,0:1\n", "failed 4 0:7\n"):
        ledger.hear(line)
    assert not any(ledger.anomalies([(0, 0), (0, 1)]).values())
    assert ledger.failed == 1


def test_anomalies_are_named_with_their_records() -> None:
    ledger = DeliveryLedger()
    for line in ("got 1 0:0\n", "done 2 0:0\n", "got 3 0:0\n", "done 4 0:0\n", "got 5 0:2"):
        ledger.hear(line)
    assert ledger.anomalies([(0, 0), (0, 2)]) == {
        "never delivered": [(0, 2)],
        "delivered after confirmation": [(0, 0)],
        "confirmed twice": [(0, 0)],
    }
