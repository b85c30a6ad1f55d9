-- Work for any process that takes it: command lines, each done once by whoever holds its lease.
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body text NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'dead')),
    attempts integer NOT NULL DEFAULT 0,
    -- Waiting: not before. Running: until when its holder has it.
    due timestamptz NOT NULL DEFAULT now(),
    holder text,
    error text,
    changed timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX job_to_do ON job (due, id) WHERE state IN ('waiting', 'running');
-- The same work waits once.
CREATE UNIQUE INDEX job_waiting ON job (md5(body)) WHERE state = 'waiting';
