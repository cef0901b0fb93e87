"""All metrics and their meaning. `docs/monitoring.md` has the same table; a test compares the two.

In Prometheus a metric is named `ticklake_SCOPE_NAME`. A counter ends in `_total`. A latency has `NAME_p50_ms`,
`NAME_p95_ms` and `NAME_p99_ms` of the last minute, `NAME_avg_ms` of all, and the histogram `NAME_seconds`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "latency"]


class Scope(NamedTuple):
    """What a metric is about: a part of its name, and its labels."""

    name: str
    labels: tuple[str, ...]

    def family(self, metric: str) -> str:
        """Returns the name of a metric in Prometheus."""
        return f"ticklake_{self.name}_{metric}"


SERVICE = Scope("service", ("service",))
TOPICS = Scope("topics", ("run",))
WRITER = Scope("writer", ("run", "topic"))
READER = Scope("reader", ("run", "topic", "group"))
GROUP = Scope("group", ("run", "topic", "group"))
COORDINATED = Scope("coordinated", ("run", "indexer", "table"))
BACKLOG = Scope("backlog", ())
RUN = Scope("run", ("run",))
NODE = Scope("node", ())


class Metric(NamedTuple):
    scope: Scope
    name: str
    kind: Kind
    help: str


def _all(scope: Scope, kind: Kind, **helps: str) -> list[Metric]:
    return [Metric(scope, name, kind, text) for name, text in helps.items()]


METRICS: tuple[Metric, ...] = (
    *_all(
        NODE,
        "gauge",
        info="Always 1; the labels are the node's name and version.",
        ready="1 if every service can work and every database answers.",
        store_up="1 if every database of the configuration answered when the lag was last read.",
        open_transaction_seconds="Age of a transaction that holds vacuum back for over a minute, by name.",
        queued_ticks="Ticks in a tick queue, by name of the queue.",
        queued_bytes="Bytes in a tick queue, by name of the queue.",
    ),
    *_all(
        SERVICE,
        "gauge",
        state="1 for the current state of the service, 0 for the others.",
        healthy="0 while something that the service needs does not answer.",
        tick="Current tick of the simulation.",
        organisms="Organisms alive in the simulation.",
        queued_ticks="Ticks waiting to be written.",
        queued_bytes="Bytes of the ticks waiting to be written.",
        unannounced_files="Files that are written, but not announced yet, because the database is away.",
        ticks_produced_per_sec="Ticks produced per second, in the last minute.",
        write_throughput_per_sec="Ticks written per second, in the last minute.",
        rows_per_sec="Rows written to the table per second, in the last minute.",
        runs_active="Runs that an indexer with the option runs works on now.",
        runs_waiting="Runs with work that wait until the indexer has a place for them.",
        runs_failing="Runs whose last attempt failed. The indexer tries them again after a pause.",
        batches_buffered="Batch files that are claimed and not yet acknowledged.",
        claimed_batches_pending="Older name of batches_buffered.",
        ticks_buffered="Ticks in the buffer that no flush has written yet.",
        current_buffer_size="Older name of ticks_buffered.",
        gaps_pending="Pending gaps.",
        batches_found="Batch files that are found and not yet claimed.",
        claim_success_rate="Share of claims that succeeded, 0 to 1.",
    ),
    *_all(
        SERVICE,
        "counter",
        errors="Errors recorded; the last 100 are at /api/services/NAME/errors.",
        restarts="Restarts after a failure.",
        ticks_produced="Ticks put into the queue.",
        cells_produced="Cells in the produced ticks.",
        ticks_written="Ticks written to batch files.",
        batches_written="Batch files written.",
        bytes_written="Bytes of the batch files, or of the merged files, written.",
        files_merged="Files of tables that compaction replaced.",
        files_written="Files of tables that compaction wrote.",
        write_retries="Retries of writes.",
        notifications_sent="Messages published about written files.",
        notification_retries="Retries of publishing.",
        metadata_written="Metadata files, or metadata tables, written.",
        batches_announced="Batch files announced by reconciliation.",
        batches_vanished="Batch files announced that are not in storage.",
        runs_abandoned="Runs closed because their producer was silent for too long.",
        flushes="Flushes: one Spark job and one commit each.",
        batches_processed="Batch files acknowledged with every tick in the table.",
        batches_skipped="Batch files skipped because they were already done.",
        batches_failed="Batch files that could not be read or indexed.",
        ticks_processed="Ticks written to the table.",
        ticks_present="Ticks skipped because the table had them: redelivered, or also in another file.",
        rows_written="Rows written to the table.",
        events_written="Events written to the table of events.",
        task_ms="Milliseconds of Spark tasks.",
        cells_observed="Cells counted by an indexer that writes nothing.",
        organisms_observed="Organisms counted by an indexer that writes nothing.",
        claim_attempts="Batch files requested from the coordinator.",
        claim_successes="Batch files received from the coordinator.",
        batches_claimed="Batch files claimed through the coordinator.",
        batches_completed="Batch files marked completed in the coordinator.",
        stuck_batches_reassigned="Batch files taken over from a dead or stuck indexer.",
        gaps_released="Gaps closed or split because a batch file filled them.",
        permanent_gaps_detected="Gaps that became permanent: no batch file filled them in time.",
        metadata_reads="Reads of the metadata of a run.",
        metadata_not_found="Reads of metadata that did not exist yet.",
        read_errors="Reads of metadata that failed.",
    ),
    *_all(
        SERVICE,
        "latency",
        write_latency="Writing a batch file, including retries.",
        flush="One flush, from its start to its acknowledgements.",
        try_claim_latency="Claiming batch files through the coordinator.",
        mark_completed_latency="Marking batch files completed.",
        mark_failed_latency="Marking a batch file failed.",
        mark_gap_pending_latency="Recording a gap.",
        has_gap_before_latency="Looking up the gaps that a batch file touches.",
        release_gap_pending_latency="Removing a gap that was filled.",
        get_metadata_latency="Reading the metadata of a run.",
        has_metadata_latency="Checking for metadata that does not exist yet.",
    ),
    *_all(
        TOPICS,
        "counter",
        messages_published="Messages that the writers of this process have stored, without the batons of outboxes.",
        messages_received="Messages claimed by all readers of this process, without batons.",
        messages_acknowledged="Messages acknowledged by all readers of this process; a repeated ack counts once.",
        stuck_messages_reassigned="Messages taken over after their claim had expired.",
        stale_acks_rejected="Acknowledgements refused because the claim had been taken over.",
        dead_letters_added="Messages set aside as dead letters.",
        queries_executed="Statements executed in the database for this run.",
    ),
    *_all(
        TOPICS,
        "gauge",
        write_throughput_per_sec="Messages written per second, in the window of the database.",
        read_throughput_per_sec="Messages claimed per second, in the window of the database.",
        pool_active_connections="Connections in use; on PostgreSQL of all runs of the database together.",
        pool_idle_connections="Open connections that are not in use.",
        pool_total_connections="Open connections.",
        pool_waiting_connections="Threads waiting for a connection.",
    ),
    *_all(
        WRITER,
        "counter",
        messages_sent="Messages that were new to the topic, stored by its writers in this process.",
        write_errors="Writes that raised an error.",
    ),
    *_all(WRITER, "gauge", write_throughput_per_sec="Messages written per second."),
    *_all(WRITER, "latency", write_latency="Writing one or more messages until they are durable."),
    *_all(
        READER,
        "counter",
        messages_received="Messages claimed.",
        messages_acknowledged="Messages acknowledged; a repeated ack counts once.",
        stale_acks_rejected="Acknowledgements refused because the claim had been taken over.",
        claim_attempts="Polls for messages to claim.",
        claim_conflicts="Polls after a wake-up that found nothing: others were faster.",
        read_errors="Polls that the database did not answer.",
        ack_errors="Retries of acknowledgements.",
        extend_errors="Retries of extensions of claims.",
        release_errors="Retries of releases of claims.",
        dead_letter_errors="Retries of recording dead letters.",
        dead_letters_added="Messages set aside as dead letters.",
    ),
    *_all(
        READER,
        "gauge",
        messages_held="Messages claimed and not yet acknowledged, including expired claims.",
        claim_conflict_ratio="Share of polls in the window that found nothing after a wake-up, 0 to 1.",
        read_throughput_per_sec="Messages claimed per second.",
    ),
    *_all(READER, "latency", claim_latency="One poll for messages to claim."),
    *_all(
        GROUP,
        "gauge",
        lag="Messages that the group has not acknowledged, counted up to a million, read from the database.",
        claimed="Unacknowledged messages that a consumer has claimed.",
        dead_letters="Dead letters of the group.",
        oldest_age_seconds="Age of the oldest unacknowledged message; 0 if there is none.",
    ),
    *_all(
        RUN,
        "gauge",
        unread_messages="Messages that announce batch files, in topics of the run that no group reads.",
        gaps_pending="Pending gaps of the run, of all tables, as its database records them.",
        gaps_permanent="Permanent gaps of the run, of all tables, as its database records them.",
    ),
    *_all(
        COORDINATED,
        "gauge",
        files="Batch files that indexers with a coordinator have not completed for a table; failed ones do not count.",
        ticks="Ticks of these files.",
        in_work="Files of these that an indexer works on now.",
        oldest_age_seconds="Age of the file with the lowest ticks; 0 if there is none or the storage has no times.",
    ),
    *_all(
        BACKLOG,
        "gauge",
        messages="Messages that the groups of all runs have not acknowledged; one that two groups need counts twice.",
        unread_messages="Messages that announce batch files, in topics of all runs that no group reads.",
        files="Batch files that coordinated tables need, of runs that an indexer has begun; twice if two need it.",
        ticks="Ticks of these files.",
        oldest_age_seconds="Age of the oldest of these messages and files; 0 if there is none.",
        dead_letters="Dead letters of the groups of all runs.",
        gaps_pending="Pending gaps of all runs and tables, as the databases record them.",
        gaps_permanent="Permanent gaps of all runs and tables, as the databases record them.",
        runs="Runs with such messages, files, dead letters or gaps.",
        runs_unreadable="Runs that cannot be read. The figures above do not include them.",
        runs_unchecked="Runs that were not read yet since the start. The figures above do not include them.",
    ),
)

HELP: dict[tuple[str, str], str] = {(metric.scope.name, metric.name): metric.help for metric in METRICS}
