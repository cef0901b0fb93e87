-- Whoever opens the queue writes its own token here. An owner that finds another one's writes nothing more.
ALTER TABLE queue_identity ADD COLUMN owner TEXT NOT NULL DEFAULT '';

-- Batches are delivered in the order of their numbers, because clocks may be wrong. 1: the batch is pending. The index holds
-- only those, however many are done. An older version does not set it, so it is set anew whenever the queue is opened.
ALTER TABLE batch_sequence ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;

CREATE INDEX batches_waiting ON batch_sequence(sequence) WHERE waiting = 1;
