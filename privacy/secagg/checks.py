"""What is checked alike at a site and at the server: lists of sites' messages, and the one view of a session."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ..sharing.selection import hides_enough
from .codes import AbortCode, abort
from .descriptor import Mode, SessionDescriptor
from .graph import Graph, graph_of
from .keys import PROTOCOL
from .messages import Keys, read_messages, signed_list
from .signing import Signed, verify


def require_signed(messages: Sequence[Signed], public_keys: Mapping[bytes, bytes]) -> None:
    """Every message is of a participant and signed by it.

    Raises:
        SecureSumFailed: "not-in-roster" or "bad-signature".
    """
    for message in messages:
        if message.sender not in public_keys:
            reason = f"site {message.sender.hex()} is not among the session's participants"
            raise abort(AbortCode.NOT_IN_ROSTER, reason, [message.sender])
        verify(message, public_keys[message.sender])


def require_group(session: SessionDescriptor, key_list: bytes) -> None:
    """Where sums are over groups, a key list has the group that everybody works out, and no site of another one.

    Raises:
        SecureSumFailed: "bad-grouping", or "bad-message".
    """
    if session.mode is not Mode.GROUPS:
        return
    for message in read_messages(key_list, "a list of keys messages"):
        if message.sender not in session.participants:
            raise abort(AbortCode.BAD_GROUPING, f"site {message.sender.hex()} is not in this site's group")


def require_distinct_keys(messages: Sequence[Signed]) -> None:
    """No X25519 key is used twice, by whomever.

    Raises:
        SecureSumFailed: "bad-key", blaming everybody who has sent it.
    """
    owners: dict[bytes, list[bytes]] = {}
    for message in messages:
        keys = Keys.from_bytes(message.body)
        for key in (keys.seal_key, keys.mask_key):
            owners.setdefault(key, []).append(message.sender)
    for sites in owners.values():
        if len(sites) > 1:
            raise abort(AbortCode.BAD_KEY, "a public key is there twice", sorted(set(sites)))


def require_enough(count: int, needed: int, what: str) -> None:
    """Raise SecureSumFailed("too-few") for fewer than ``needed``."""
    if count < needed:
        raise abort(AbortCode.TOO_FEW, f"{count} {what}, expected at least {needed}")


def require_hidden(weights: Collection[int], least: int) -> None:
    """Raise SecureSumFailed("selection-too-small") unless a sum with these weights mixes as much as ``least`` alike."""
    if not hides_enough(np.array(list(weights), np.int64), least):
        reason = f"the selection of {len(weights)} sites does not hide an update as {least} alike do"
        raise abort(AbortCode.SELECTION_TOO_SMALL, reason)


def session_graph(session: SessionDescriptor, keys: Sequence[Signed]) -> Graph:
    """Who masks with whom, given everybody's keys."""
    sites = [message.sender for message in keys]
    return graph_of(sites, session.sid, [message.body for message in keys], session.degree)


def view_digest(sid: bytes, keys: Sequence[Signed], dealers: Sequence[bytes], masked: Sequence[Signed]) -> bytes:
    """What an acknowledgement is for: SHA-256 over the keys (U1), the dealers (U2) and the masked updates (U3).

    So all who give shares agree on every list, and not on the last one only.
    """
    parts = (signed_list(keys), b"".join(dealers), signed_list(masked))
    return hashlib.sha256(PROTOCOL + b"ack" + sid + b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
