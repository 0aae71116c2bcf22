"""The process that holds a link: a thread that admits members, and hands their questions to the registry."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import Any

from .address import tuned
from .claim import Claim
from .open_sockets import remember
from .registry import Refused, Registry
from .roles import Member
from .secret import fresh_nonce, is_proof, proof
from .store_meeting import StoreMeeting, Visitor
from .wire import MOST, VERSION, Inbox, Message, packed

_MOST_STRANGERS = 128
_PATIENCE_WITH_STRANGERS_S = 5.0
_FAREWELL_S = 0.2
_CHUNK = 1 << 18


class _Peer:
    """A connection; a member once it has shown that it knows the secret."""

    def __init__(self, connection: socket.socket, where: str) -> None:
        self.connection = connection
        self.where = where
        self.nonce = fresh_nonce()
        self.since_s = time.monotonic()
        self.inbox = Inbox()
        self.outbox = bytearray()
        self.member: Member | None = None
        self.visitor: Visitor | None = None  # of the place where a joint group meets
        self.is_refused = False

    def is_stranger(self) -> bool:
        return self.member is None and self.visitor is None


class Hub:
    def __init__(self, listener: socket.socket, secret: bytes, claim: Claim) -> None:
        self._secret = secret
        self._claim = claim
        self._meeting = StoreMeeting()
        self._registry = Registry(claim, self._meeting)
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._peers: set[_Peer] = set()
        self._is_over = False
        self._waker, self._woken = socket.socketpair()
        for one in (listener, self._waker, self._woken):
            one.setblocking(False)
            remember(one)
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="shardway-link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What was answered already still arrives."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            for key, events in self._selector.select(timeout=1.0):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Peer):
                    self._serve(key.data, events)
            self._drop_slow_strangers()
        self._say_farewell()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, where = self._listener.accept()
            strangers = sum(peer.is_stranger() for peer in self._peers)
            if strangers >= _MOST_STRANGERS:
                connection.close()
                return
            connection.setblocking(False)
            remember(tuned(connection))
            peer = _Peer(connection, str(where[0]))
            self._peers.add(peer)
            self._selector.register(connection, selectors.EVENT_READ, peer)
            self._send(peer, {"shardway_link": VERSION, "nonce": peer.nonce})

    def _drop_slow_strangers(self) -> None:
        latest = time.monotonic() - _PATIENCE_WITH_STRANGERS_S
        for peer in [peer for peer in self._peers if peer.is_stranger() and peer.since_s < latest]:
            self._drop(peer, "")

    def _serve(self, peer: _Peer, events: int) -> None:
        if peer not in self._peers:  # dropped since its bytes came
            return
        if events & selectors.EVENT_WRITE:
            self._flush(peer)
        if not events & selectors.EVENT_READ or peer not in self._peers:
            return
        try:
            some = peer.connection.recv(_CHUNK)
            if not some:
                return self._drop(peer, "died")
            peer.inbox.add(some)
            while peer in self._peers and (message := peer.inbox.next()) is not None:
                self._hear(peer, message)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(peer, f"died ({error.strerror})")
        except Exception as error:  # of a message that nobody should have sent: the others go on
            self._drop(peer, f"said what cannot be understood ({type(error).__name__}: {error})")

    def _hear(self, peer: _Peer, message: Message) -> None:
        if peer.is_refused:
            return
        if peer.member is not None:
            self._registry.hear(peer.member, message)
        elif peer.visitor is not None:
            self._meeting.hear(peer.visitor, message)
        else:
            self._admit(peer, message)

    def _admit(self, peer: _Peer, message: Message) -> None:
        if message.get("shardway_link") != VERSION:
            why = f"this link speaks version {VERSION}, the newcomer version {message.get('shardway_link')}"
            return self._refuse(peer, Refused(why, is_final=True))
        claim = Claim.read(message)
        meeting = message.get("meeting")
        said = [peer.nonce, message.get("nonce"), claim.said(), meeting]
        if not is_proof(message.get("proof"), proof(self._secret, "member", *said)):
            self._registry.note_refusal(f"a process at {peer.where} has another secret")
            return self._refuse(peer, Refused(f"the secret is not that of {self._claim}", is_final=True))
        try:
            if meeting is None:
                peer.member = self._registry.admit(claim, lambda answer: self._send(peer, answer))
            else:
                peer.visitor = self._admitted_visitor(peer, meeting)
        except Refused as refusal:
            return self._refuse(peer, refusal)
        peer.inbox.most = MOST
        return self._send(
            peer, {"is": "welcome", "hub": self._claim.said(), "proof": proof(self._secret, "hub", *said)}
        )

    def _admitted_visitor(self, peer: _Peer, meeting: object) -> Visitor:
        if not self._meeting.admits(meeting):
            raise Refused("that meeting is over", is_final=True)
        visitor = Visitor(lambda answer: self._send(peer, answer), lambda: self._drop(peer, ""))
        self._meeting.enter(visitor)
        return visitor

    def _refuse(self, peer: _Peer, refusal: Refused) -> None:
        peer.is_refused = True  # it closes the connection, or is dropped as slow
        self._send(peer, {"is": "refused", "why": str(refusal), "is_final": refusal.is_final})

    def _send(self, peer: _Peer, message: Message) -> None:
        if peer in self._peers:
            peer.outbox += packed(message)
            self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        """A failure is left to the next read, which finds it too."""
        with contextlib.suppress(OSError):
            while peer.outbox:
                del peer.outbox[: peer.connection.send(peer.outbox)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.outbox else 0)
        self._selector.modify(peer.connection, events, peer)

    def _drop(self, peer: _Peer, why: str) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if peer.visitor is not None:
            self._meeting.leave(peer.visitor)
        if peer.member is not None:
            self._registry.lose(peer.member, why)

    def _say_farewell(self) -> None:
        """Closed at once, a connection with unread bytes would take back what was sent last."""
        self._selector.unregister(self._listener)
        self._listener.close()
        self._meeting.close()
        for peer in self._peers:
            self._last_words(peer)
        end_s = time.monotonic() + _FAREWELL_S
        while self._peers and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                if isinstance(key.data, _Peer) and _has_ended(key.data.connection):
                    self._forget(key.data)
        for peer in list(self._peers):
            self._forget(peer)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def _last_words(self, peer: _Peer) -> None:
        if peer.member is not None:
            peer.outbox += packed(self._registry.farewell(peer.member))
        with contextlib.suppress(OSError):
            peer.connection.setblocking(True)
            peer.connection.settimeout(_FAREWELL_S)
            peer.connection.sendall(peer.outbox)
            peer.connection.shutdown(socket.SHUT_WR)
            peer.connection.setblocking(False)

    def _forget(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()


def _has_ended(connection: Any) -> bool:
    try:
        return not connection.recv(_CHUNK)
    except BlockingIOError:
        return False
    except OSError:
        return True
