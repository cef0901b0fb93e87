"""Spark Connect: a session on a remote server, without a JVM or Spark context in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from ticklake.lake.errors import ConnectMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark retries silently for ten minutes by default. The flush retries anyway, and logs it.
_TRIES, _MAX_PAUSE_MS = 6, 4000
# A cluster may grow while it is used, so the number of cores is read again after this time.
_FRESH_SECONDS = 60.0
_MANY = 4096

_known_cores: WeakKeyDictionary[SparkSession, tuple[float, int]] = WeakKeyDictionary()


def connect(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Opens a new session on the server at `sc://HOST:PORT`. Skips settings that only the server can change."""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise ConnectMissing(reason=error) from error
    session = RemoteSession.builder.remote(url).create()
    session.client.set_retry_policies([DefaultPolicy(max_retries=_TRIES, max_backoff=_MAX_PAUSE_MS)])
    for name, value in settings.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return cast("SparkSession", session)


def is_connected(spark: SparkSession) -> bool:
    """Returns True if this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def close(spark: SparkSession) -> None:
    """Closes the local end of a session that its server no longer knows."""
    spark.release_session_on_close = False  # type: ignore[attr-defined]
    spark.stop()


def cores(spark: SparkSession) -> int:
    """Returns the number of cores of the cluster: the default number of partitions of a range."""
    asked, count = _known_cores.get(spark, (0.0, 0))
    if not count or time.monotonic() - asked > _FRESH_SECONDS:
        parts = spark.range(_MANY).selectExpr("spark_partition_id() AS part").groupBy().max("part").collect()
        count = int(parts[0][0]) + 1
        _known_cores[spark] = (time.monotonic(), count)
    return count
