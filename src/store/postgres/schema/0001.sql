-- The records of the catalogue, sealed, as the embedded one has them; and the sidecars, so that no page needs a blob store.
CREATE TABLE record (
    key bytea PRIMARY KEY,
    value bytea NOT NULL
);

-- Digests whose sidecar may be ahead of its records: written before the sidecar, removed with the records' change.
CREATE TABLE pending (
    sha256 bytea PRIMARY KEY,
    since timestamptz NOT NULL DEFAULT now()
);

-- Small documents: where channels point, who this site is, when upstreams were reached.
CREATE TABLE document (
    name text PRIMARY KEY,
    body bytea NOT NULL
);

-- Snapshots in pieces, so that the largest needs little memory; the head once more, to be read without them.
CREATE TABLE snapshot (
    id text PRIMARY KEY,
    head bytea NOT NULL
);
CREATE TABLE snapshot_piece (
    id text NOT NULL REFERENCES snapshot (id) ON DELETE CASCADE,
    number integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (id, number)
);

-- Logs, one line a row.
CREATE TABLE log (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    body text NOT NULL
);
CREATE INDEX log_by_name ON log (name, number);

-- What changed, in the order of commits: writers take turns at this table's end. No project: the notes; '*': anything.
CREATE TABLE change (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin text NOT NULL,
    project text,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX change_by_age ON change (at);
