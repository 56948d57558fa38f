"""How both ends open the connection: mutual TLS, one list of options each."""

from __future__ import annotations

from typing import Any, Final

import grpc

from .address import split_address

CHUNK_BYTES: Final = 1 << 20
SECURE_BYTES: Final = 4 << 20  # what 64 sites seal for each other about their sketches, with proofs
MAX_MESSAGE_BYTES: Final = SECURE_BYTES + 64 * 1024
KEEPALIVE_MS: Final = 20_000

# Every server certificate carries this DNS name and no other certificate does (``SERVER_NAME`` of
# ``privacy/certificates.py``). It is asked for instead of the address that was dialled.
SERVER_NAME: Final = "foedus.server"

_MESSAGES: Final = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

# HTTP proxies (https_proxy, no_proxy) are followed, as is gRPC's default.
CHANNEL_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    *_MESSAGES,
    ("grpc.ssl_target_name_override", SERVER_NAME),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
    # A renewed certificate gets a connection of its own instead of an old one from the pool.
    ("grpc.use_local_subchannel_pool", 1),
)

# A server that tolerates the channel's pings; gRPC's default would hang up on them.
SERVER_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    # What the server buffers for a site is bounded: 1 MiB, instead of a window that grows to what a
    # fast line can fill. At 200 ms of delay that still carries 40 Mbit/s for each site.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 20),
    *_MESSAGES,
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    # Two servers on one port would share its callers at random.
    ("grpc.so_reuseport", 0),
)


def secure_channel(address: str, *, authority_pem: bytes, key_pem: bytes, certificate_pem: bytes) -> grpc.aio.Channel:
    """A channel that talks only to a server certified by ``authority_pem``.

    Nothing is connected before the first call. The caller closes it.

    Raises:
        ConfigError: the address is not ``host:port``.
    """
    split_address(address)
    credentials = grpc.ssl_channel_credentials(authority_pem, key_pem, certificate_pem)
    return grpc.aio.secure_channel(address, credentials, options=list(CHANNEL_OPTIONS))
