"""All metrics there are, with what they mean. `docs/monitoring.md` has the same table; a test holds the two together.

In Prometheus a metric is named `ticklake_SCOPE_NAME`: a counter with `_total` behind it; a latency as `NAME_p50_ms`,
`NAME_p95_ms`, `NAME_p99_ms` of the last minute, `NAME_avg_ms` of all, and the summary `NAME_seconds` (count and sum).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "latency"]


class Scope(NamedTuple):
    """What a metric is about: its part of the name, and the labels that tell one from the other."""

    name: str
    labels: tuple[str, ...]


SERVICE = Scope("service", ("service",))
TOPICS = Scope("topics", ("run",))
WRITER = Scope("writer", ("run", "topic"))
READER = Scope("reader", ("run", "topic", "group"))
GROUP = Scope("group", ("run", "topic", "group"))
NODE = Scope("node", ())


class Metric(NamedTuple):
    scope: Scope
    name: str
    kind: Kind
    help: str

    @property
    def exported(self) -> str:
        """The name of its family in Prometheus."""
        return f"ticklake_{self.scope.name}_{self.name}"


def _all(scope: Scope, kind: Kind, **helps: str) -> list[Metric]:
    return [Metric(scope, name, kind, text) for name, text in helps.items()]


METRICS: tuple[Metric, ...] = (
    *_all(
        NODE,
        "gauge",
        info="Always 1; the labels are the node's name and version.",
        ready="1 if every service can do its work and every database answers.",
        store_up="1 if every database of the configuration answered when the lag was last looked up.",
        open_transaction_seconds="Age of a transaction that holds vacuum back, over a minute, by its name.",
        queued_ticks="Ticks that wait in a queue, by its name.",
        queued_bytes="Bytes of the ticks that wait in a queue, by its name.",
    ),
    *_all(
        SERVICE,
        "gauge",
        state="1 for the state the service is in, 0 for the others.",
        healthy="0 while something it needs does not answer.",
        tick="The tick the simulation is at.",
        organisms="Organisms alive in the simulation.",
        queued_ticks="Ticks that wait to be written.",
        queued_bytes="Bytes of the ticks that wait to be written.",
        ticks_produced_per_sec="Ticks produced a second, in the last minute.",
        write_throughput_per_sec="Ticks written a second, in the last minute.",
        rows_per_sec="Rows written into the table a second, in the last minute.",
        batches_buffered="Batch files held: claimed and not yet acknowledged.",
        claimed_batches_pending="The same under its older name.",
        ticks_buffered="Ticks held that no flush has written yet.",
        current_buffer_size="The same under its older name.",
        gaps_pending="Gaps that are still looked for.",
        batches_found="Batch files found and not yet claimed.",
        claim_success_rate="Claims won of those tried, 0 to 1.",
    ),
    *_all(
        SERVICE,
        "counter",
        errors="Errors recorded; the last 100 are at /api/services/NAME/errors.",
        restarts="Starts after it had died.",
        ticks_produced="Ticks put into the queue.",
        cells_produced="Cells in these ticks.",
        ticks_written="Ticks written into batch files.",
        batches_written="Batch files written.",
        bytes_written="Bytes of the batch files, or of the merged files, written.",
        files_merged="Files of tables that were merged away.",
        files_written="Files of tables that came out of merging.",
        write_retries="Writes that were tried again.",
        notifications_sent="Messages published about what was written.",
        notification_retries="Publishes that were tried again.",
        metadata_written="Metadata files, or metadata tables, written.",
        batches_announced="Batch files announced because nobody had.",
        batches_vanished="Batch files announced that are not in storage.",
        flushes="Flushes: one Spark job and one commit each.",
        batches_processed="Batch files of which every tick is in the table, acknowledged.",
        batches_skipped="Batch files skipped because they were done before.",
        batches_failed="Batch files that could not be read or indexed.",
        ticks_processed="Ticks written into the table.",
        ticks_present="Ticks delivered again that were in the table already.",
        rows_written="Rows written into the table.",
        events_written="Events written into the table of events.",
        task_ms="Milliseconds that Spark's tasks were at work for it.",
        cells_observed="Cells seen by an indexer that only counts.",
        organisms_observed="Organisms seen by an indexer that only counts.",
        claim_attempts="Batch files that the coordinator was asked for.",
        claim_successes="Batch files that it gave.",
        batches_claimed="Batch files claimed through the coordinator.",
        batches_completed="Batch files marked completed in the coordinator.",
        stuck_batches_reassigned="Batch files taken over from a dead or stuck indexer.",
        gaps_released="Gaps closed or split because a batch file filled them.",
        permanent_gaps_detected="Gaps given up: their batch files never came.",
        metadata_reads="Times the metadata of a run was read.",
        metadata_not_found="Times it was not there yet.",
        read_errors="Times it could not be read.",
    ),
    *_all(
        SERVICE,
        "latency",
        write_latency="Writing a batch file, retries included.",
        flush="One flush, from its start to its acknowledgements.",
        try_claim_latency="Claiming batch files through the coordinator.",
        mark_completed_latency="Marking batch files completed.",
        mark_failed_latency="Marking a batch file failed.",
        mark_gap_pending_latency="Recording a gap.",
        has_gap_before_latency="Looking up the gaps that a batch file touches.",
        release_gap_pending_latency="Removing a gap that was filled.",
        get_metadata_latency="Reading the metadata of a run.",
        has_metadata_latency="Finding out that the metadata is not there yet.",
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
        queries_executed="Statements run in the database for this run.",
    ),
    *_all(
        TOPICS,
        "gauge",
        write_throughput_per_sec="Messages written a second, in the window of the database.",
        read_throughput_per_sec="Messages claimed a second, in the window of the database.",
        pool_active_connections="Connections in use; on PostgreSQL of all runs of the database together.",
        pool_idle_connections="Connections open and not in use.",
        pool_total_connections="Connections open.",
        pool_waiting_connections="Threads that wait for a connection.",
    ),
    *_all(
        WRITER,
        "counter",
        messages_sent="Messages that were new to the topic, stored by its writers in this process.",
        write_errors="Writes that raised an error.",
    ),
    *_all(WRITER, "gauge", write_throughput_per_sec="Messages written a second."),
    *_all(WRITER, "latency", write_latency="Writing one or many messages, until they are durable."),
    *_all(
        READER,
        "counter",
        messages_received="Messages claimed.",
        messages_acknowledged="Messages acknowledged; a repeated ack counts once.",
        stale_acks_rejected="Acknowledgements refused because the claim had been taken over.",
        claim_attempts="Looks for something to claim.",
        claim_conflicts="Looks after a wake-up that found nothing: others were faster.",
        read_errors="Looks that the database did not answer.",
        ack_errors="Acknowledgements that had to be repeated.",
        extend_errors="Extensions of claims that had to be repeated.",
        release_errors="Releases of claims that had to be repeated.",
        dead_letter_errors="Dead letters that had to be tried again.",
    ),
    *_all(
        READER,
        "gauge",
        messages_in_hand="Messages claimed and not yet acknowledged, also those whose claim has expired since.",
        claim_conflict_ratio="Looks that found nothing after a wake-up, of all in the window, 0 to 1.",
        read_throughput_per_sec="Messages claimed a second.",
    ),
    *_all(READER, "latency", claim_latency="One look for something to claim."),
    *_all(
        GROUP,
        "gauge",
        lag="Messages that the group has not acknowledged, counted to a million, from the store.",
        claimed="Messages of these that a consumer holds.",
        dead_letters="Dead letters of the group.",
        oldest_age_seconds="Age of the oldest message that is not acknowledged; 0 where there is none.",
    ),
)

HELP: dict[tuple[str, str], str] = {(metric.scope.name, metric.name): metric.help for metric in METRICS}
