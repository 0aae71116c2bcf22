"""How two processes show one another that they know the secret, without saying it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets

ENVIRONMENT = "SHARDWAY_LINK_SECRET"


def read_secret(given: str | bytes | None) -> bytes:
    """None is that of the environment, and none at all where that is not set."""
    if given is None:
        given = os.environ.get(ENVIRONMENT, "")
    if not isinstance(given, (str, bytes)):
        raise ValueError(f"connect: secret is a {type(given).__name__}, not a str or bytes")
    return given.encode() if isinstance(given, str) else given


def fresh_nonce() -> str:
    return secrets.token_hex(16)


def proof(secret: bytes, side: str, *said: object) -> str:
    """Of one side (so that an answer cannot be sent back as a question) and of all that both have said so far."""
    return hmac.new(secret, json.dumps([side, *said]).encode(), hashlib.sha256).hexdigest()


def is_proof(shown: object, expected: str) -> bool:
    return isinstance(shown, str) and hmac.compare_digest(shown.encode(), expected.encode())
