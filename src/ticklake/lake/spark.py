"""The Spark session that flushes run on."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ticklake.errors import JavaMissing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_STARTING = threading.Lock()
_CHATTER = b"Using incubator modules"
_LOGGING = Path(__file__).with_name("log4j2.properties")

_SETTINGS = {
    # A flush is one narrow stage: there is nothing to adapt, and planning it costs 30 ms a job.
    "spark.sql.adaptive.enabled": "false",
    # Indexers of several tables share the cores instead of queueing behind each other.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The JVM only hands work out: a small heap and the quick compiler start sooner and run as fast.
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOGGING}",
}


def open_session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session on `master`: `local[*]`, `spark://…`, `yarn`, `k8s://…`, or `sc://…` for Spark Connect."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Workers must run the Python that runs here, whatever `python3` is on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("sc://"):
        return _configured(SparkSession.builder.remote(master), settings or {}).getOrCreate()
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise JavaMissing()
    own = dict(_SETTINGS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        own |= _LOCAL_SETTINGS
    builder = SparkSession.builder.master(master).appName("ticklake")
    with _STARTING, _without_jvm_chatter() if SparkContext._active_spark_context is None else nullcontext():
        return _configured(builder, own | dict(settings or {})).getOrCreate()


def parallelism(spark: SparkSession) -> int:
    """How many tasks the cluster runs at once, as far as Spark tells."""
    context = getattr(spark, "_sc", None)
    if context is not None:
        return int(context.defaultParallelism)
    return int(spark.conf.get("spark.default.parallelism", "2") or 2)


def warm_up(spark: SparkSession) -> None:
    """Has every core start its Python worker and load what tasks need, so that the first flush is not the slow one."""

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import ticklake.lake.task  # noqa: F401

        yield from batches

    cores = parallelism(spark)
    spark.range(0, cores, 1, cores).mapInArrow(load, "id long").collect()


def ship_with_jobs(module: ModuleType) -> None:
    """Has this module's code travel with every job, so that the workers need not have it installed."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def share_cores_fairly(spark: SparkSession, pool: str) -> None:
    """Jobs of this thread take turns with those of other pools. (Through Spark Connect the server decides.)"""
    context = getattr(spark, "_sc", None)
    if context is not None:
        context.setLocalProperty("spark.scheduler.pool", pool)


def job_died(error: Exception) -> bool:
    """Whether a job ran and failed, as opposed to a Spark that is not there to run it."""
    return "Job aborted" in str(error) or type(error).__name__ == "PythonException"


def reason_of(error: Exception) -> str:
    """The cause at the bottom of what Spark says, in one line; the rest is its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "most recent failure" in line] or lines
    return causes[0].rpartition("Exception: ")[2][:300] if causes else type(error).__name__


@contextmanager
def _without_jvm_chatter() -> Iterator[None]:
    """The JVM that is started inside keeps a stderr that passes on everything but one line nobody can act on."""
    real = os.dup(2)
    source, sink = os.pipe()
    os.dup2(sink, 2)
    os.close(sink)
    threading.Thread(target=_pass_on, args=(source, real), name="spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(real, 2)


def _pass_on(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as real:
        for line in lines:
            if _CHATTER not in line:
                real.write(line)


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
