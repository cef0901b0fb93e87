"""Opens and closes the Spark session that flushes use."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ticklake.lake.errors import SparkUnavailable
from ticklake.lake.session import connect
from ticklake.lake.session.java import find_java
from ticklake.lake.session.master import CONNECT, check_reachable

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
# Tells the JVM not to install signal handlers.
_NO_SIGNAL_HANDLERS = "-Xrs"

_SETTINGS = {
    # A flush is one narrow stage. Adaptive planning would only cost 30 ms a job.
    "spark.sql.adaptive.enabled": "false",
    # Indexers of several tables share the cores instead of waiting for each other.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The JVM only distributes work. A small heap and the simple compiler start sooner and are as fast.
    "spark.driver.memory": "1g",
    _JAVA_OPTIONS: f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOGGING}",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def open_session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Opens a session on `master`: `local[*]`, `spark://…`, `yarn`, `k8s://…`, or `sc://…` for Spark Connect.

    The same arguments give the same session again, or a new one if that one has ended.
    """
    known = (master, frozenset((settings or {}).items()))
    with _STARTING:
        if known not in _OPEN or _ended(_OPEN[known]):
            _OPEN[known] = _open(master, settings or {})
        return _OPEN[known]


def _open(master: str, settings: Mapping[str, str]) -> SparkSession:
    # Workers must use the same Python as this process, not the `python3` of their path. Users can set another one.
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    check_reachable(master)
    if master.startswith(CONNECT):
        return connect.connect(master, settings)
    find_java()
    own = dict(_SETTINGS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        own |= _LOCAL_SETTINGS
    return _start(master, own | dict(settings))


def _start(master: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    options = f"{_NO_SIGNAL_HANDLERS} {settings.get(_JAVA_OPTIONS, '')}"
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
    """Starts the JVM so that signals do not stop it: the last flush needs it and its workers.

    It has its own process session, so signals to our process group do not reach it. It and its children block SIGTERM,
    which systemd sends to every process of a service. It ends when its stdin closes, at the latest with this process.

    It is started in another thread, which is not interrupted: if PySpark gave up the start, the JVM would stay for
    ever. A JVM that starts after an interrupt is used by the next session.
    """
    with ThreadPoolExecutor(1, "spark-start") as starting:
        starting.submit(_launch, conf).result()


def _launch(conf: SparkConf) -> None:
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    # Children inherit the mask. Unlike a handler, it can be set in any thread. This thread ends with the launch.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def stop_session(spark: SparkSession) -> None:
    """Ends a session, even if its JVM is gone."""
    try:
        spark.stop()
    except Exception:
        log.debug("The session could not be stopped: its JVM is gone", exc_info=True)
        _forget_jvm()


def close_if_dead(spark: SparkSession) -> None:
    """Ends a session that cannot run jobs any more, so that `open_session` returns a new one."""
    if connect.is_connected(spark):
        connect.close(spark)
    elif _jvm_gone():
        _forget_jvm()
    elif _stopped_inside(spark):
        stop_session(spark)


def _ended(spark: SparkSession) -> bool:
    return spark.is_stopped if connect.is_connected(spark) else spark._sc._jsc is None  # type: ignore[attr-defined]


def _jvm_gone() -> bool:
    """Returns True if the JVM of this process has ended, for example killed because memory ran out."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget_jvm() -> None:
    """Resets PySpark, which keeps its connection to a JVM even if the JVM has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if (context := SparkContext._active_spark_context) is not None:
        context._jsc = None  # otherwise `stop` would call the JVM
        context.stop()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _stopped_inside(spark: SparkSession) -> bool:
    """Returns True if Spark has ended its own context, as it does when a cluster's master removes it."""
    try:
        return bool(spark._jsc.sc().isStopped())
    except Exception:  # it does not answer
        return False


def parallelism(spark: SparkSession) -> int:
    """Returns the number of tasks that the cluster runs at once. It grows as executors start."""
    with _answering(spark):
        return connect.cores(spark) if connect.is_connected(spark) else int(spark.sparkContext.defaultParallelism)


def ship_with_jobs(module: ModuleType) -> None:
    """Sends the code of this module with every job, so that workers need not install it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def share_cores_fairly(spark: SparkSession, pool: str) -> None:
    """Runs jobs of this thread in turns with those of other pools. With Spark Connect, the server decides."""
    if not connect.is_connected(spark):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def job_died(error: Exception) -> bool:
    """Returns True if a job ran and failed, and False if Spark could not run it."""
    return "Job aborted" in str(error) or type(error).__name__ == "PythonException"


def reason_of(error: Exception) -> str:
    """Returns the cause of a Spark error in one line, without its stack."""
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
        close_if_dead(spark)
        raise SparkUnavailable(reason=reason_of(error)) from error


@contextmanager
def _without_jvm_chatter() -> Iterator[None]:
    """Filters one useless line from the stderr of a JVM that is started inside the block."""
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
