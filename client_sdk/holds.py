"""What leaves the site in a secure sum, in words for those who decide whether it may."""

from __future__ import annotations

from ..privacy.secagg.descriptor import Mode, Noise, SessionDescriptor
from ..privacy.secagg.signing import Kind


def message_holds(kind: Kind, session: SessionDescriptor) -> str:
    """What a message of this site holds, in one sentence.

    Args:
        kind: a kind that sites send, but a complaint.
        session: the one that it is of; where sums are over groups, that of the site's group.
    """
    shares = session.mode is Mode.SHARES
    dealt, of_all = ("update", "updates") if shares else ("sketch", "sketches")
    chosen = "selected" if session.mode in (Mode.SKETCH, Mode.SHARES) else "in the sum"
    proof = ", and shares of a proof that what this site has dealt is short, sealed for each other site"
    unmasks = "shares of the masks of the others: of each, what takes its mask off the sum, and nothing else"
    return {
        Kind.KEYS: "two public keys of this session, and a commitment to this site's own mask",
        Kind.SHARES: "shares of this site's two secrets, sealed for each other site; the server cannot read them",
        Kind.MASKED: f"the digest of the {'sealed shares' if shares else 'masked words'}; they travel beside it",
        Kind.DEAL: f"shares of this site's {dealt}, sealed for each other site; the server cannot read them",
        Kind.AGREE: "the digest of who has dealt what" + proof * session.strict,
        Kind.CONFIRM: "the digest of who has proved what",
        Kind.PRODUCTS: f"shares of the products of every two sites' {of_all}, which together give the lengths and "
        "distances that the rule decides by, and of what tells whether the sites have dealt as they must",
        Kind.ACK: f"the digest of who is {chosen}, so that no two sums can be opened",
        Kind.UNMASK: unmasks,
        Kind.SUM: f"a share of the sum of the selected {of_all}" + f", and {unmasks}" * (not shares),
    }[kind]


def words_hold(session: SessionDescriptor) -> str:
    """What is in the file that travels beside the messages, in one sentence."""
    noise = "" if session.noise is Noise.NONE else f" and {session.noise.name.lower().replace('_', '-')} noise"
    what = "counters" if session.whole else "update"
    if session.mode is Mode.SHARES:
        return f"this site's {what}, in shares sealed for each other site; the server cannot read them"
    return f"this site's {what}{noise}, masked: random numbers to whoever has not the masks of all the others"
