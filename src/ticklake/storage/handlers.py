"""Native decoders and encoders of messages: protobuf bytes to Arrow and back."""

from __future__ import annotations

from functools import cache
from typing import Any

import ptars
from google.protobuf.descriptor import Descriptor


@cache
def handler(descriptor: Descriptor) -> Any:
    """Returns a ptars handler. Cached, because a task needs the same ones for every slice and each costs 1 ms."""
    return ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)
