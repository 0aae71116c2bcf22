"""A process on a link: it finds the process that holds the link, or holds it itself, and asks it."""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import time

from shardway._C import LinkHub

from .address import Address
from .claim import Claim
from .open_sockets import remember
from .secret import fresh_nonce, is_proof, proof
from .wire import MOST, VERSION, Inbox, Message, NotOurs, packed

_FIRST_NAP_S, _LONGEST_NAP_S = 0.005, 0.2
_HELLO_S = 5.0
_GRACE_S = 5.0  # for the hub's answer to one who gives up
_PATIENCE_WITH_HOLDER_S = 3.0  # of a place: a process that has just died may still seem to have it
_CHUNK = 1 << 18


class HubGone(Exception):
    """The process that held the link has ended, or does not answer."""


class HubMoved(HubGone):
    """It left in peace, and there is nothing to tell: another process may hold the link."""


class TooLate(Exception):
    """The timeout has passed."""


class _Refused(Exception):
    def __init__(self, message: Message) -> None:
        super().__init__(str(message.get("why")))
        self.is_final = bool(message.get("is_final"))


class Connection:
    """To the hub. A question gets one answer."""

    def __init__(
        self, connection: socket.socket, claim: Claim, secret: bytes, deadline_s: float, meeting: str | None = None
    ) -> None:
        self._socket = remember(connection)
        self._inbox = Inbox()
        self._arrivals = select.poll()
        self._arrivals.register(connection, select.POLLIN)
        try:
            self.hub = self._greeted(claim, secret, meeting, min(deadline_s, time.monotonic() + _HELLO_S))
        except BaseException:
            connection.close()
            raise

    def _greeted(self, claim: Claim, secret: bytes, meeting: str | None, deadline_s: float) -> Claim:
        hello = self._next(deadline_s)
        if hello.get("shardway_link") != VERSION:
            why = f"it speaks version {hello.get('shardway_link')} of the link, this process version {VERSION}"
            raise _Refused({"why": why, "is_final": True})
        said = [hello.get("nonce"), fresh_nonce(), claim.said(), meeting]
        shown = {"shardway_link": VERSION, "nonce": said[1], "claim": said[2], "meeting": meeting}
        shown["proof"] = proof(secret, "member", *said)
        self._socket.sendall(packed(shown))
        answer = self._next(deadline_s)
        if answer.get("is") == "refused":
            raise _Refused(answer)
        if not is_proof(answer.get("proof"), proof(secret, "hub", *said)):
            raise _Refused({"why": "who listens there does not know the secret", "is_final": True})
        self._inbox.most = MOST
        return Claim.read({"claim": answer.get("hub")})

    def ask(self, question: Message, deadline_s: float) -> Message:
        answer = self._answer(question, deadline_s)
        if answer.get("is") == "moved":
            raise HubMoved("it left the link")
        return answer

    def _answer(self, question: Message, deadline_s: float) -> Message:
        try:
            if (farewell := self._farewell()) is not None:
                return farewell
            self._socket.settimeout(max(_GRACE_S, deadline_s - time.monotonic()))
            self._socket.sendall(packed(question))
            try:
                return self._next(deadline_s)
            except TooLate:
                self._socket.settimeout(_GRACE_S)
                self._socket.sendall(packed({"do": "withdraw"}))
                return self._next(time.monotonic() + _GRACE_S)
        except (OSError, NotOurs, TooLate) as error:
            self.close()
            raise HubGone(str(error)) from error
        except BaseException:  # Ctrl-C: nobody would read the answer
            self.close()
            raise

    def _farewell(self) -> Message | None:
        """What the hub said unasked, before it closed the connection."""
        while self.has_news():
            message = self._next_of_any_kind(time.monotonic() + _HELLO_S)
            if message.get("is") != "nudge":
                return message
        return None

    def has_news(self) -> bool:
        """Whether the hub has said something unasked, or has closed the connection. Asks nothing and never waits."""
        return not self._inbox.is_empty() or self._socket.fileno() < 0 or bool(self._arrivals.poll(0))

    def _next(self, deadline_s: float) -> Message:
        """The next message but nudges, which only say that there is something to ask for."""
        while (message := self._next_of_any_kind(deadline_s)).get("is") == "nudge":
            pass
        return message

    def _next_of_any_kind(self, deadline_s: float) -> Message:
        while (message := self._inbox.next()) is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TooLate("no answer within the timeout")
            self._socket.settimeout(left_s)
            try:
                some = self._socket.recv(_CHUNK)
            except TimeoutError:
                continue
            if not some:
                raise ConnectionResetError("the connection was closed")
            self._inbox.add(some)
        return message

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.settimeout(_GRACE_S)
            self._socket.sendall(packed({"do": "leave"}))
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        self._socket.close()


class Membership:
    """This process's place on a link, kept across the death of the process that holds the link."""

    def __init__(self, address: Address, claim: Claim, secret: bytes) -> None:
        self.address = address
        self.claim = claim
        self._secret = secret
        self._hub: LinkHub | None = None
        self.connection: Connection | None = None

    def connect(self, deadline_s: float) -> None:
        """To the hub, or as the hub where this process is a rank 0 that can listen at the address."""
        nap_s, last, started_s = _FIRST_NAP_S, "nobody listens there", time.monotonic()
        patience_s = min(_PATIENCE_WITH_HOLDER_S, (deadline_s - started_s) / 2)
        while self.connection is None:
            try:
                self._try_to_hold()
                dialled = self.address.dial(max(0.1, min(_HELLO_S, deadline_s - time.monotonic())))
                self.connection = Connection(dialled, self.claim, self._secret, deadline_s)
                return
            except _Refused as refusal:
                if refusal.is_final or time.monotonic() - started_s > patience_s:
                    raise ValueError(f"connect: {self.address} refused {self.claim}: {refusal}") from None
                last = str(refusal)
            except NotOurs as error:
                last = f"what listens there is not a link of shardway: {error}"
            except (OSError, TooLate) as error:
                last = str(error)
            if time.monotonic() + nap_s > deadline_s:
                raise TooLate(f"{self.address}: {last}")
            time.sleep(nap_s * random.uniform(0.5, 1.0))
            nap_s = min(2 * nap_s, _LONGEST_NAP_S)

    def _try_to_hold(self) -> None:
        if self.claim.rank > 0 or self._hub is not None:
            return
        with contextlib.suppress(OSError):  # another process listens, or the address is another host's
            self._hub = LinkHub(self.address.listen().detach(), self._secret, json.dumps(self.claim.said()))

    def visit(self, meeting: str, timeout_s: float) -> Connection:
        """A second connection, to where the ranks of a joint group meet."""
        deadline_s = time.monotonic() + timeout_s
        try:
            return Connection(self.address.dial(timeout_s), self.claim, self._secret, deadline_s, meeting)
        except (_Refused, NotOurs, OSError, TooLate) as error:
            raise HubGone(f"the meeting at {self.address}: {error}") from error

    def forget_connection(self) -> None:
        """After the hub was lost."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def leave(self, *, is_failing: bool = False) -> None:
        """A process that fails says nothing: the others are told that it is lost."""
        if self.connection is not None:
            self.connection.close() if is_failing else self.connection.leave()
            self.connection = None
        if self._hub is not None:
            self._hub.close()
            self._hub = None
