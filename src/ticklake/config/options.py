"""The options of each class. `reference.conf` documents them; a test checks that the two agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator

from ticklake import defaults
from ticklake.config.locations import DatabaseUrl, Directory, StoragePlace, with_credentials
from ticklake.config.units import Bytes, Milliseconds, Seconds
from ticklake.database.url import split_password

Count = Annotated[int, Field(ge=1)]
PositiveMilliseconds = Annotated[Milliseconds, Field(ge=1)]


class Options(BaseModel):
    """A frozen set of options that refuses unknown keys. `synonyms` are alternative names; `free` accepts any key."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    synonyms: ClassVar[dict[str, str]] = {}
    free: ClassVar[bool] = False

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("cannot be true or false")
        return value


class ConnectionOptions(Options):
    """How to connect. The password comes from the environment and is never shown."""

    synonyms = {"jdbc_url": "url", "db_path": "url", "path": "url"}

    username: str | None = None
    password: SecretStr = SecretStr("")
    max_pool_size: Count = 10
    min_idle: Annotated[int, Field(ge=0, default_factory=lambda given: min(2, given.get("max_pool_size", 2)))]
    metrics_window_seconds: Annotated[Seconds, Field(gt=0)] = 60

    @model_validator(mode="before")
    @classmethod
    def _split_password_from_url(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("url"), str):
            url, password = split_password(values["url"])
            if password:
                return values | {"url": url, "password": password}
        return values

    @model_validator(mode="after")
    def _check_pool(self) -> Self:
        if self.min_idle > self.max_pool_size:
            raise ValueError(f"min_idle ({self.min_idle}) cannot be more than max_pool_size ({self.max_pool_size})")
        return self


class DatabaseOptions(ConnectionOptions):
    """A database of runs: a directory with one SQLite file per run, or PostgreSQL with one schema per run."""

    url: DatabaseUrl

    def dsn(self) -> str:
        """The URL to connect with, including user and password. Do not print it."""
        return with_credentials(self.url, self.username, self.password.get_secret_value())


class TopicOptions(ConnectionOptions):
    """A topic: in a database resource, or in its own database."""

    database: str | None = None
    url: DatabaseUrl | None = None
    claim_timeout: Seconds = defaults.CLAIM_TIMEOUT_SECONDS
    max_delivery_attempts: Count = defaults.MAX_DELIVERY_ATTEMPTS

    @model_validator(mode="after")
    def _check_database_or_url(self) -> Self:
        if (self.database is None) == (self.url is None):
            raise ValueError("needs either database (the name of a Database resource) or url")
        return self


class StorageOptions(Options):
    """The directory of the batch files."""

    synonyms = {"root_directory": "path"}

    path: StoragePlace
    compress: bool = True


class QueueOptions(Options):
    """The tick queue between producer and persistence services. A full queue makes the producer wait."""

    synonyms = {"capacity": "max_ticks"}

    max_ticks: Count = defaults.QUEUE_TICKS
    max_bytes: Annotated[Bytes, Field(ge=1)] = defaults.QUEUE_BYTES


class EventQueueOptions(Options):
    """The file of an event queue (`IndexerQueue`)."""

    synonyms = {"db_path": "path"}

    path: Directory
    max_attempts: Count = 5


class SparkOptions(Options):
    """The Spark session. Every setting whose name starts with `spark.` is passed on."""

    free = True

    master: str = "local[*]"
    settings: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _settings_by_full_name(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        flat = dict(_flattened(values))
        settings = {key: _as_spark_writes(value) for key, value in flat.items() if key.startswith("spark.")}
        return {key: value for key, value in flat.items() if key not in settings} | {"settings": settings}


def _flattened(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flattens nested blocks: HOCON reads `spark.ui.enabled` as three of them."""
    for key, value in values.items():
        name = "" if not prefix and key == "settings" and isinstance(value, dict) else f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flattened(value, f"{name}." if name else "")
        else:
            yield name, value


def _as_spark_writes(value: Any) -> str:
    if hasattr(value, "normalized") or isinstance(value, timedelta):
        raise ValueError('HOCON reads 512m as minutes; put Spark settings in quotes: "512m"')
    return str(value).lower() if isinstance(value, bool) else str(value)


class LakeOptions(Options):
    """The directory of the tables, and the Spark session that fills them."""

    path: Directory
    spark: SparkOptions = SparkOptions()


class SimulationOptions(Options):
    """The producer that comes with TickLake."""

    synonyms = {"ticks": "max_ticks"}

    run_id: str | None = None
    max_ticks: Count | None = None
    shape: Annotated[list[Annotated[int, Field(ge=3)]], Field(min_length=2, max_length=2)] = [128, 128]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 42
    organisms: Count = 200
    season_ticks: Annotated[int, Field(ge=2)] = 160
    sampling_interval: Annotated[int, Field(ge=1, lt=2**31)] = 1


class RetryOptions(Options):
    """How a failed write is retried. Each pause is twice as long as the previous one."""

    max_attempts: Count = defaults.WRITE_ATTEMPTS
    first_delay_ms: Milliseconds = defaults.WRITE_FIRST_DELAY_MS
    max_delay_ms: Milliseconds = defaults.WRITE_MAX_DELAY_MS


class MetadataPersistenceOptions(Options):
    """Writes the metadata of a run."""

    retry: RetryOptions = RetryOptions()


class CompletionOptions(Options):
    """Records the end of a run once all its ticks are written."""

    retry: RetryOptions = RetryOptions()


class ReconciliationOptions(Options):
    """Announces batch files that were never announced, in all runs or in one.

    `abandon_after_seconds`: then a run without a file or a message is closed.
    """

    run_id: str | None = None
    interval_ms: PositiveMilliseconds = 60_000
    abandon_after_seconds: Annotated[Seconds, Field(gt=0)] | None = None


class CompactionOptions(Options):
    """Merges small files of tables, in all runs or in one."""

    run_id: str | None = None
    interval_ms: PositiveMilliseconds = 30_000
    fan_in: Annotated[int, Field(ge=2)] = 8
    full_bytes: Annotated[Bytes, Field(ge=1 << 20)] = 32 << 20


class PersistenceOptions(Options):
    """A batch file is closed by the first limit it reaches."""

    max_batch_size: Count = defaults.BATCH_TICKS
    max_batch_bytes: Annotated[Bytes, Field(ge=1)] = defaults.BATCH_BYTES
    batch_timeout_seconds: Annotated[Seconds, Field(gt=0)] = defaults.BATCH_TIMEOUT_SECONDS
    retry: RetryOptions = RetryOptions()


class IndexerOptions(Options):
    """Indexes the run `run_id`, or all that `runs` selects, or the first run that starts after the indexer.

    `runs`: all, newest, or a pattern such as `202611*`.
    """

    run_id: str | None = None
    runs: Annotated[str, Field(min_length=1)] | None = None
    poll_interval_ms: PositiveMilliseconds = defaults.POLL_INTERVAL_MS
    max_poll_duration_ms: Milliseconds = defaults.MAX_POLL_DURATION_MS


class MetadataIndexerOptions(IndexerOptions):
    """Fails if no metadata arrives within `topic_poll_timeout_ms`."""

    topic_poll_timeout_ms: PositiveMilliseconds = defaults.TOPIC_POLL_TIMEOUT_MS


class BatchIndexerOptions(IndexerOptions):
    """`gap_warning_timeout_ms`: then a gap becomes permanent.

    `topic_poll_timeout_ms` is accepted for older configurations and ignored.
    """

    insert_batch_size: Count = defaults.INSERT_BATCH_SIZE
    flush_timeout_ms: PositiveMilliseconds = defaults.FLUSH_TIMEOUT_MS
    topic_poll_timeout_ms: PositiveMilliseconds | None = None
    enable_idempotency: bool = False
    until_caught_up: bool = False
    gap_warning_timeout_ms: Milliseconds = defaults.GAP_WARNING_TIMEOUT_MS
    share: str | None = None


class EnvironmentIndexerOptions(BatchIndexerOptions):
    """`cells`: which cells to write. `none` still reads and acknowledges the batches."""

    cells: Literal["all", "snapshots", "changes", "none"] = "all"


class UnbufferedIndexerOptions(IndexerOptions):
    """Flushes each tick separately."""

    topic_poll_timeout_ms: PositiveMilliseconds = 5000
    enable_idempotency: bool = False
    until_caught_up: bool = False


class EventIndexerOptions(Options):
    """Without a `run_id`, events belong to the run of this node's simulation."""

    run_id: str | None = None
    max_batches: Count = 100
    until_caught_up: bool = False


class RestartOptions(Options):
    """How a failed service is restarted. Each pause is about twice as long as the previous one."""

    max_restarts: Annotated[int, Field(ge=0)] = defaults.MAX_RESTARTS
    first_delay_ms: PositiveMilliseconds = defaults.RESTART_FIRST_DELAY_MS
    max_delay_ms: PositiveMilliseconds = defaults.RESTART_MAX_DELAY_MS
    reset_after_ms: PositiveMilliseconds = defaults.RESTART_RESET_AFTER_MS


class LogOptions(Options):
    """What `ticklake run` logs to stderr. `-v` and `--log-format` override it."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "warning"


class HttpOptions(Options):
    """The HTTP server of the node; off without a port. Any address but loopback needs TICKLAKE_TOKEN."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] | None = None
    path_prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    allowed_hosts: list[str] = []
    read_only: bool = False


class NodeOptions(Options):
    """The node itself: its name, its directory, and how it restarts services."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "ticklake"
    directory: Annotated[Directory, Field(validate_default=True)] = "data"
    instances: Literal["refuse", "compete"] = "refuse"
    stop_timeout: Annotated[Seconds, Field(gt=0)] = 60
    restart: RestartOptions = RestartOptions()
    log: LogOptions = LogOptions()
    http: HttpOptions = HttpOptions()
