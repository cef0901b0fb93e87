"""The consumer of the example: each trade on `ingestion-topic` is validated once; its result is published."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from ticklake import Database, Message, Transaction
from ticklake.consumer import consumer

sys.path.insert(0, str(Path(__file__).parents[1]))
from trades.trades_pb2 import Trade, ValidationResult

INGESTION, VALIDATION, GROUP = "ingestion-topic", "validation-topic", "validation-consumer-group"
SQL = "trades"  # the folder sql/ of this package


def event_id(message: Message) -> str:
    """A trade that is sent twice is two messages and one event."""
    return str(message.payload.event_id)  # type: ignore[attr-defined]


def errors_of(trade: Trade) -> list[str]:
    checks = {
        "no symbol": not trade.symbol,
        "quantity must be positive": trade.quantity <= 0,
        "price must be positive": trade.price_cents <= 0,
    }
    return [error for error, wrong in checks.items() if wrong]


@consumer(INGESTION, group=GROUP, publishes=VALIDATION, event_id=event_id, claim_timeout=2, max_delivery_attempts=100)
def validate(trade: Trade, tx: Transaction) -> ValidationResult:
    """Runs in the transaction that also holds the mark, the outbox row and the ack."""
    errors = errors_of(trade)
    tx.sql(SQL).record_validation(number=trade.number, valid=int(not errors), validator=os.getpid())
    return ValidationResult(event_id=trade.event_id, number=trade.number, valid=not errors, errors=errors)


def main(url: str, run_id: str) -> None:
    """One validator, until it is told to stop."""
    with Database(url) as database, validate.on(database.run(run_id)) as validator:
        signal.signal(signal.SIGTERM, lambda *_: validator.stop())
        validator.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
