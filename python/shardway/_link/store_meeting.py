"""Where the ranks of a joint group meet: keys and values that the process that holds the link keeps."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field

from .secret import fresh_nonce
from .wire import Message, NotOurs

SET, GET, ADD, CHECK, WAIT, DELETE, SWAP, COUNT = "set", "get", "add", "check", "wait", "delete", "swap", "count"


@dataclass(eq=False)
class Visitor:
    """A rank that has come. A question gets one answer, maybe late."""

    answer: Callable[[Message], None]
    dismiss: Callable[[], None]
    awaited: list[str] = field(default_factory=list)  # keys


class StoreMeeting:
    """One place per group. Whoever waits in a place that is closed is dismissed at once."""

    def __init__(self) -> None:
        self._name = ""
        self._values: dict[str, bytes] = {}
        self._visitors: list[Visitor] = []

    def open(self) -> Message:
        self.close()
        self._name = fresh_nonce()
        return {"meeting": self._name}

    def close(self) -> None:
        visitors, self._visitors = self._visitors, []
        self._name, self._values = "", {}
        for visitor in visitors:
            visitor.dismiss()

    def admits(self, meeting: object) -> bool:
        return bool(self._name) and meeting == self._name

    def enter(self, visitor: Visitor) -> None:
        self._visitors.append(visitor)

    def leave(self, visitor: Visitor) -> None:
        if visitor in self._visitors:
            self._visitors.remove(visitor)

    def hear(self, visitor: Visitor, question: Message) -> None:
        do = question.get("do")
        if do == "withdraw":
            if visitor.awaited:
                visitor.awaited = []
                visitor.answer({"is": "late"})
        elif do == WAIT:
            visitor.awaited = [str(key) for key in question["keys"]]
            self._answer_if_there(visitor)
        else:
            visitor.answer({"is": "done", **self._done(str(do), question)})

    def _done(self, do: str, question: Message) -> Message:
        if do == CHECK:
            return {"are_there": all(key in self._values for key in question["keys"])}
        if do == COUNT:
            return {"count": len(self._values)}
        key = str(question["key"])
        if do == GET:
            return {"value": said(self._values[key])} if key in self._values else {}
        if do == DELETE:
            return {"was_there": self._values.pop(key, None) is not None}
        if do == ADD:
            count = int(self._values.get(key, b"0")) + int(question["count"])
            self._put(key, str(count).encode())
            return {"count": count}
        if do == SET:
            self._put(key, heard(question["value"]))
            return {}
        if do == SWAP:
            return {"value": said(self._swapped(key, heard(question["expected"]), heard(question["value"])))}
        raise NotOurs(f"a store has no {do}")

    def _swapped(self, key: str, expected: bytes, value: bytes) -> bytes:
        """As torch's stores do it: a key that is not there is set if nothing is expected."""
        if key not in self._values:
            if expected:
                return expected
            self._put(key, value)
        elif self._values[key] == expected:
            self._put(key, value)
        return self._values[key]

    def _put(self, key: str, value: bytes) -> None:
        self._values[key] = value
        for visitor in list(self._visitors):
            if key in visitor.awaited:
                self._answer_if_there(visitor)

    def _answer_if_there(self, visitor: Visitor) -> None:
        if all(key in self._values for key in visitor.awaited):
            visitor.awaited = []
            visitor.answer({"is": "done"})


def said(value: bytes) -> str:
    return base64.b64encode(value).decode()


def heard(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
