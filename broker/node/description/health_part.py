"""Certificates and ineffective settings of this node for DescribeNode."""

import asyncio
from collections.abc import Sequence

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.exposure import exposure_warnings
from broker.config.load import effect_warnings
from broker.node.tls import NodeTls
from broker.tls.settings import StoreSettings
from protocol.messages.describe_node import DescribedCertificate, DescribeNodeResponse


async def add_health(response: DescribeNodeResponse, config: BrokerConfig, tls: NodeTls) -> None:
    """Add warnings about the present configuration, and the certificates of the listeners, read on a thread."""
    response.config_warnings = [*effect_warnings(config), *exposure_warnings(config)]
    stores = {
        name: store
        for name, listener in tls.listeners.items()
        if (store := listener.loaded.settings.key_store) is not None
    }
    if stores:
        response.certificates = list(await asyncio.to_thread(_certificates, stores))


def _certificates(stores: dict[str, StoreSettings]) -> Sequence[DescribedCertificate]:
    """Read the first certificate of each key store. Blocks. Stores that cannot be read are left out: a reload logs."""
    # Local imports: a node without TLS does not load cryptography.
    from cryptography import x509

    from broker.tls.key_material import read_key_store

    found = []
    for listener, store in stores.items():
        try:
            own = x509.load_pem_x509_certificates(read_key_store(store).certificates)[0]
        except (ConfigError, ValueError):
            continue
        not_after_ms = int(own.not_valid_after_utc.timestamp() * 1000)
        found.append(DescribedCertificate(listener, own.subject.rfc4514_string(), not_after_ms))
    return found
