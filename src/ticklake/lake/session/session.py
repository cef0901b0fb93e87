"""The Spark session that flushes run on."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ticklake.lake.errors import JavaMissing, SparkUnavailable
from ticklake.lake.session import connect
from ticklake.lake.session.master import CONNECT, knock

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_STARTING = threading.Lock()
_OPEN: dict[tuple[str, frozenset[tuple[str, str]]], SparkSession] = {}
_CHATTER = b"Using incubator modules"
# The last line of a Python traceback.
_RAISED = re.compile(r"[A-Za-z_][\w.]*(: |$)")
_LOGGING = Path(__file__).with_name("log4j2.properties")

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Leaves signals as they were when the JVM started.
_DEAF = "-Xrs"

_SETTINGS = {
    # A flush is one narrow stage: there is nothing to adapt, and planning it costs 30 ms a job.
    "spark.sql.adaptive.enabled": "false",
    # Indexers of several tables share the cores instead of queueing behind each other.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The JVM only hands work out: a small heap and the quick compiler start sooner and run as fast.
    "spark.driver.memory": "1g",
    _JAVA_OPTIONS: f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOGGING}",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def open_session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session on `master`: `local[*]`, `spark://…`, `yarn`, `k8s://…`, or `sc://…` for Spark Connect.

    Asked the same again, it is the same session, or a new one where that one has ended.
    """
    known = (master, frozenset((settings or {}).items()))
    with _STARTING:
        if known not in _OPEN or _ended(_OPEN[known]):
            _OPEN[known] = _open(master, settings or {})
        return _OPEN[known]


def _open(master: str, settings: Mapping[str, str]) -> SparkSession:
    # Workers must run the Python that runs here, whatever `python3` is on their path; only a user knows a better one.
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    knock(master)
    if master.startswith(CONNECT):
        return connect.connect(master, settings)
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise JavaMissing()
    own = dict(_SETTINGS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        own |= _LOCAL_SETTINGS
    return _start(master, own | dict(settings))


def _start(master: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    options = f"{_DEAF} {settings.get(_JAVA_OPTIONS, '')}"
    given = {"spark.master": master, "spark.app.name": "ticklake", **settings, _JAVA_OPTIONS: options}
    builder = SparkSession.builder
    for key, value in given.items():
        builder = builder.config(key, value)
    with _without_jvm_chatter() if SparkContext._active_spark_context is None else nullcontext():
        try:
            if SparkContext._gateway is None:
                _start_jvm(SparkConf().setAll(list(given.items())))
            return builder.getOrCreate()
        except Exception as error:
            if _jvm_gone():
                _forget_jvm()
            raise SparkUnavailable(reason=reason_of(error)) from error


def _start_jvm(conf: SparkConf) -> None:
    """Starts the JVM out of reach of the signals that ask us to stop: the last flush needs it, and its workers.

    It has a session of its own, so signals to our process group do not reach it. It and its children never see a
    SIGTERM, which systemd sends to every process of a service. It ends when its stdin closes, so at the latest with us.

    No interrupt reaches the thread that starts it: a JVM whose start PySpark gives up stays for ever. One that has
    started after an interrupt is there for the next session.
    """
    with ThreadPoolExecutor(1, "spark-start") as starting:
        starting.submit(_launch, conf).result()


def _launch(conf: SparkConf) -> None:
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    # A mask is inherited, and unlike a handler it can be set in any thread. This one ends with the launch.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def stop_session(spark: SparkSession) -> None:
    """Ends a session; one whose JVM is gone has ended already."""
    try:
        spark.stop()
    except Exception:
        log.debug("The session could not be stopped: its JVM is gone", exc_info=True)
        _forget_jvm()


def leave_if_gone(spark: SparkSession) -> None:
    """Ends a session that can run no more jobs, so that whoever asks for it again gets a new one."""
    if connect.is_connected(spark):
        connect.leave(spark)
    elif _jvm_gone():
        _forget_jvm()
    elif _stopped_inside(spark):
        stop_session(spark)


def _ended(spark: SparkSession) -> bool:
    return spark.is_stopped if connect.is_connected(spark) else spark._sc._jsc is None  # type: ignore[attr-defined]


def _jvm_gone() -> bool:
    """Whether the JVM that was started here has ended, killed for want of memory, say."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget_jvm() -> None:
    """PySpark keeps the way to a JVM for ever, also where there is none any more."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if (context := SparkContext._active_spark_context) is not None:
        context._jsc = None  # or it would be asked to stop
        context.stop()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _stopped_inside(spark: SparkSession) -> bool:
    """Whether Spark has ended its context by itself, as it does when a cluster's master has dismissed it."""
    try:
        return bool(spark._jsc.sc().isStopped())
    except Exception:  # it does not answer
        return False


def parallelism(spark: SparkSession) -> int:
    """How many tasks the cluster runs at once, as far as Spark tells: it grows as executors come."""
    with _answering(spark):
        return connect.cores(spark) if connect.is_connected(spark) else int(spark.sparkContext.defaultParallelism)


def ship_with_jobs(module: ModuleType) -> None:
    """Has this module's code travel with every job, so that the workers need not have it installed."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def share_cores_fairly(spark: SparkSession, pool: str) -> None:
    """Jobs of this thread take turns with those of other pools. (Through Spark Connect the server decides.)"""
    if not connect.is_connected(spark):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def job_died(error: Exception) -> bool:
    """Whether a job ran and failed, as opposed to a Spark that is not there to run it."""
    return "Job aborted" in str(error) or type(error).__name__ == "PythonException"


def reason_of(error: Exception) -> str:
    """The cause at the bottom of what Spark says, in one line; the rest is its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if "Traceback (most recent call last):" in str(error):
        raised = [line for line in str(error).splitlines() if _RAISED.match(line)]
        return (raised or lines)[-1][:300]
    causes = [line for line in lines if "most recent failure" in line] or lines
    return causes[0].rpartition("Exception: ")[2][:300]


@contextmanager
def _answering(spark: SparkSession) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        leave_if_gone(spark)
        raise SparkUnavailable(reason=reason_of(error)) from error


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
