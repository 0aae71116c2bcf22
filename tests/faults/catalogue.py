"""All calls by name."""

from __future__ import annotations

from tests.faults.axes import Traits
from tests.faults.backend_calls import BACKEND_CALLS
from tests.faults.calls import CALLS
from tests.faults.lists import LISTS
from tests.faults.redistributions import REDISTRIBUTIONS

ALL = CALLS | LISTS | REDISTRIBUTIONS | BACKEND_CALLS
TRAITS: dict[str, Traits] = {name: traits for name, (traits, _) in ALL.items()}
