"""A site's state as bytes, to be kept over a restart."""

from __future__ import annotations

import json
from typing import Any

from ..secrets import Secret
from .codes import AbortCode, Refusal
from .descriptor import SessionDescriptor
from .messages import read_messages, signed_list
from .signing import Signed
from .state import Answer, Exposure, Held, Sharing, SiteState, Stage


def stored(state: SiteState) -> Secret:
    """All of it as bytes, which hold secrets: store them where only this site can read."""
    return Secret(json.dumps(_table(state)))


def restored(secret: Secret) -> SiteState:
    """The state of which ``stored`` gave the bytes."""
    return _state(json.loads(secret.reveal()))


def _table(state: SiteState) -> dict[str, Any]:
    refusal = state.refusal
    return {
        "stage": state.stage,
        "descriptor": state.descriptor.to_bytes().hex(),
        "site": state.site.hex(),
        "public_keys": [key.hex() for key in state.public_keys],
        "roster_version": state.roster_version,
        "secrets": [
            secret.reveal_bytes().hex() for secret in (state.seal_key, state.mask_key, state.seed, state.rounding)
        ],
        "keys": signed_list(state.keys).hex(),
        "dealers": [site.hex() for site in state.dealers],
        "held": [
            [item.owner.hex(), item.seed_share.reveal_bytes().hex(), item.mask_share.reveal_bytes().hex()]
            for item in state.held
        ],
        "masked_digest": state.masked_digest.hex(),
        "masked": state.masked.to_bytes().hex() if state.masked else None,
        "survivors": [site.hex() for site in state.survivors],
        "view": state.view.hex(),
        "answers": [[answer.request.hex(), answer.reply.hex()] for answer in state.answers],
        "earlier": [[[site.hex() for site in item.members], item.threshold] for item in state.earlier],
        "sharing": _sharing_table(state.sharing) if state.sharing else None,
        "refusal": [refusal.code, refusal.reason, [site.hex() for site in refusal.blamed]] if refusal else None,
    }


def _state(table: dict[str, Any]) -> SiteState:
    seal_key, mask_key, seed, rounding = (Secret(bytes.fromhex(text)) for text in table["secrets"])
    return SiteState(
        stage=Stage(table["stage"]),
        descriptor=SessionDescriptor.from_bytes(bytes.fromhex(table["descriptor"])),
        site=bytes.fromhex(table["site"]),
        public_keys=_ids(table["public_keys"]),
        roster_version=table["roster_version"],
        seal_key=seal_key,
        mask_key=mask_key,
        seed=seed,
        rounding=rounding,
        keys=_messages(table["keys"]),
        dealers=_ids(table["dealers"]),
        held=tuple(
            Held(bytes.fromhex(owner), Secret(bytes.fromhex(seed_share)), Secret(bytes.fromhex(mask_share)))
            for owner, seed_share, mask_share in table["held"]
        ),
        masked_digest=bytes.fromhex(table["masked_digest"]),
        masked=Signed.from_bytes(bytes.fromhex(table["masked"])) if table["masked"] else None,
        survivors=_ids(table["survivors"]),
        view=bytes.fromhex(table["view"]),
        answers=tuple(Answer(bytes.fromhex(request), bytes.fromhex(reply)) for request, reply in table["answers"]),
        earlier=tuple(Exposure(_ids(members), threshold) for members, threshold in table["earlier"]),
        sharing=_sharing(table["sharing"]) if table["sharing"] else None,
        refusal=_refusal(table["refusal"]),
    )


def _sharing_table(sharing: Sharing) -> dict[str, Any]:
    return {
        "update_digest": sharing.update_digest.reveal_bytes().hex(),
        "vector": sharing.vector.reveal_bytes().hex(),
        "draw": sharing.draw.reveal_bytes().hex(),
        "deal": sharing.deal.hex(),
        "own": sharing.own.reveal_bytes().hex(),
        "own_proof": sharing.own_proof.reveal_bytes().hex(),
        "deals": signed_list(sharing.deals).hex(),
        "proofs": signed_list(sharing.proofs).hex(),
        "agreement": sharing.agreement.hex(),
        "challenge": sharing.challenge.hex(),
        "shares": [[dealer.hex(), share.reveal_bytes().hex()] for dealer, share in sharing.shares],
        "selected": [site.hex() for site in sharing.selected],
        "summed": sharing.summed.reveal_bytes().hex(),
    }


def _sharing(table: dict[str, Any]) -> Sharing:
    return Sharing(
        update_digest=Secret(bytes.fromhex(table["update_digest"])),
        vector=Secret(bytes.fromhex(table["vector"])),
        draw=Secret(bytes.fromhex(table["draw"])),
        deal=bytes.fromhex(table["deal"]),
        own=Secret(bytes.fromhex(table["own"])),
        own_proof=Secret(bytes.fromhex(table["own_proof"])),
        deals=_messages(table["deals"]),
        proofs=_messages(table["proofs"]),
        agreement=bytes.fromhex(table["agreement"]),
        challenge=bytes.fromhex(table["challenge"]),
        shares=tuple((bytes.fromhex(dealer), Secret(bytes.fromhex(share))) for dealer, share in table["shares"]),
        selected=_ids(table["selected"]),
        summed=Secret(bytes.fromhex(table["summed"])),
    )


def _messages(text: str) -> tuple[Signed, ...]:
    return read_messages(bytes.fromhex(text), "stored messages")


def _ids(texts: list[str]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(text) for text in texts)


def _refusal(stored: list[Any] | None) -> Refusal | None:
    return Refusal(AbortCode(stored[0]), stored[1], _ids(stored[2])) if stored else None
