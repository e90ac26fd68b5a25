"""The commit before leaving the group, through a rebalance if there is one.

Owns the patience. While the group is between two generations the broker refuses a commit, until
this member has joined the next one, which happens inside the client's calls for records. Giving
up there would have the next owner do again what was drained.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from consumer.core.events import Committed
from consumer.core.ledger.columns import Partition
from consumer.kafka.client import KafkaClient
from consumer.kafka.errors import ClientFatalError

#: Longest patience; the whole end of the worker has a watchdog beside it.
PATIENCE_SECONDS = 5.0
#: One call for the client's callbacks.
SERVE_SECONDS = 0.05
#: Codes in the text of an answer that say that the group is rebalancing.
_REBALANCING = ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS")


def commit_last(client: KafkaClient, offsets: Mapping[Partition, int]) -> Committed | None:
    """Commit and wait for the answer; may serve the client's callbacks in between.

    Parameters
    ----------
    client : KafkaClient
        Not inside one of its callbacks. Everything is paused, so its calls bring no records.
    offsets : mapping
        Partition -> next offset to read.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = client.commit(offsets, wait=True)
        error = (answer and answer.error) or ""
        if not any(code in error for code in _REBALANCING) or time.monotonic() > until:
            return answer
        try:
            client.consume(1, SERVE_SECONDS)
        except ClientFatalError:
            return answer
