"""What the PostgreSQL server does for ``PostgresStore``: each step is one function, one statement, one round trip.

    calls(id, call_id, fence, writer, until, number, created, changed)     until: end of the lease; NULL: free
    items(call ─▶ calls.id, position, body)                                body: one item as wire JSON

A statement that has begun is finished by the server alone, so a worker that is stopped or cut off in the
middle of one holds no lock. All times are the server's. ``-1`` and ``-2`` are ``lease.MOVED`` and ``lease.BEHIND``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["APPLY", "FORGET", "INSTALLED", "LOAD", "OPEN", "RELEASE", "RENEW", "RESTORE", "SCHEMA"]

INSTALLED: Final = "SELECT to_regprocedure('{schema}.forget_v1(double precision)') IS NOT NULL"
OPEN: Final = "SELECT * FROM {schema}.open_v1(%s, %s, %s, %s)"
APPLY: Final = "SELECT {schema}.apply_v1(%s, %s, %s, %s, %s, %s::bigint[], %s::int[], %s::int[], %s::int[], %s::text[])"
RENEW: Final = "SELECT {schema}.renew_v1(%s, %s, %s, %s, %s, %s)"
RESTORE: Final = "SELECT {schema}.restore_v1(%s, %s, %s, %s, %s, %s, %s::text[])"
# Without its writer: a request of the writer that arrives only now must not open the call again.
RELEASE: Final = "UPDATE {schema}.calls SET until = NULL, writer = '' WHERE call_id = %s AND fence = %s AND writer = %s"
LOAD: Final = (
    "SELECT ARRAY(SELECT body FROM {schema}.items WHERE call = calls.id ORDER BY position)"
    " FROM {schema}.calls WHERE call_id = %s"
)
FORGET: Final = "SELECT {schema}.forget_v1(%s)"

SCHEMA: Final = """
SELECT pg_advisory_xact_lock(hashtext('micdrop_agent {schema}'));
SET LOCAL search_path TO {schema}, pg_temp;

CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE IF NOT EXISTS {schema}.calls (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    call_id text COLLATE "C" NOT NULL UNIQUE,
    fence bigint NOT NULL DEFAULT 0,
    writer text NOT NULL DEFAULT '',
    until timestamptz,
    number bigint NOT NULL DEFAULT 0,
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE IF NOT EXISTS {schema}.items (
    call bigint NOT NULL REFERENCES {schema}.calls ON DELETE CASCADE,
    position int NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (call, position) DEFERRABLE  -- positions of many items move in one statement
);

CREATE INDEX IF NOT EXISTS calls_changed ON {schema}.calls (changed);

-- Open a call for a writer, or name the present one.
CREATE OR REPLACE FUNCTION {schema}.open_v1(
    a_call text, a_writer text, a_lease double precision, a_take boolean,
    OUT granted boolean, OUT present text, OUT fence bigint, OUT previous text, OUT number bigint, OUT bodies text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
DECLARE c calls;
BEGIN
    INSERT INTO calls (call_id) VALUES (a_call) ON CONFLICT DO NOTHING;
    SELECT * INTO c FROM calls WHERE calls.call_id = a_call FOR UPDATE;
    granted := a_take OR c.until IS NULL OR c.until <= clock_timestamp() OR c.writer = a_writer;
    present := c.writer;
    IF NOT granted THEN RETURN; END IF;
    fence := c.fence + 1;
    previous := c.writer;
    number := c.number;
    UPDATE calls SET fence = c.fence + 1, writer = a_writer, until = clock_timestamp() + a_lease * interval '1 second'
        WHERE calls.id = c.id;
    bodies := ARRAY(SELECT body FROM items WHERE call = c.id ORDER BY position);
END $$;

-- Whose the call is: 0 the caller's; -1 another writer's; -2 the server lost what it had.
CREATE OR REPLACE FUNCTION {schema}.whose_v1(c {schema}.calls, a_fence bigint, a_writer text, a_previous text)
RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF c.id IS NULL THEN RETURN -2; END IF;
    IF c.fence = a_fence AND c.writer = a_writer THEN RETURN 0; END IF;
    -- Back in the state of before this opening: it names the writer before. A later writer would be named otherwise.
    IF c.fence < a_fence AND c.writer = a_previous AND (c.until IS NULL OR c.until <= clock_timestamp()) THEN
        RETURN -2;
    END IF;
    RETURN -1;
END $$;

CREATE OR REPLACE FUNCTION {schema}.renew_v1(
    a_call text, a_fence bigint, a_writer text, a_previous text, a_lease double precision, a_number bigint
) RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
DECLARE c calls; whose int;
BEGIN
    SELECT * INTO c FROM calls WHERE call_id = a_call FOR UPDATE;
    whose := whose_v1(c, a_fence, a_writer, a_previous);
    IF whose < 0 THEN RETURN whose; END IF;
    IF c.number < a_number THEN RETURN -2; END IF;
    UPDATE calls SET until = clock_timestamp() + a_lease * interval '1 second' WHERE id = c.id;
    RETURN 0;
END $$;

-- Store changes: for each its number, index, how many items go, how many come; and all that come, in order.
CREATE OR REPLACE FUNCTION {schema}.apply_v1(
    a_call text, a_fence bigint, a_writer text, a_previous text, a_lease double precision,
    a_numbers bigint[], a_indexes int[], a_gone int[], a_come int[], a_bodies text[]
) RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
DECLARE c calls; whose int; at int := 0; behind int; last bigint;
BEGIN
    SELECT * INTO c FROM calls WHERE call_id = a_call FOR UPDATE;
    whose := whose_v1(c, a_fence, a_writer, a_previous);
    IF whose < 0 THEN RETURN whose; END IF;
    last := c.number;
    IF a_numbers[1] > last + 1 THEN RETURN -2; END IF;
    FOR n IN 1 .. coalesce(array_length(a_numbers, 1), 0) LOOP
        IF a_numbers[n] > last THEN
            behind := a_indexes[n] + a_gone[n];
            IF a_gone[n] > 0 THEN
                DELETE FROM items WHERE call = c.id AND position >= a_indexes[n] AND position < behind;
            END IF;
            IF a_come[n] <> a_gone[n] THEN
                UPDATE items SET position = position + a_come[n] - a_gone[n] WHERE call = c.id AND position >= behind;
            END IF;
            INSERT INTO items (call, position, body)
                SELECT c.id, a_indexes[n] + k - 1, a_bodies[at + k] FROM generate_series(1, a_come[n]) AS k;
            last := a_numbers[n];
        END IF;
        at := at + a_come[n];
    END LOOP;
    UPDATE calls SET number = last, changed = clock_timestamp(),
        until = clock_timestamp() + a_lease * interval '1 second' WHERE id = c.id;
    RETURN 0;
END $$;

-- Put a call back that the server lost, wholly or in part; never in the place of something newer.
CREATE OR REPLACE FUNCTION {schema}.restore_v1(
    a_call text, a_fence bigint, a_writer text, a_previous text, a_lease double precision,
    a_number bigint, a_bodies text[]
) RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
DECLARE c calls; whose int;
BEGIN
    INSERT INTO calls (call_id, writer) VALUES (a_call, a_previous) ON CONFLICT DO NOTHING;
    SELECT * INTO c FROM calls WHERE call_id = a_call FOR UPDATE;
    whose := whose_v1(c, a_fence, a_writer, a_previous);
    IF whose = -1 THEN RETURN whose; END IF;
    IF whose = 0 AND c.number >= a_number THEN RETURN 0; END IF;
    DELETE FROM items WHERE call = c.id;
    INSERT INTO items (call, position, body)
        SELECT c.id, k - 1, a_bodies[k] FROM generate_series(1, coalesce(array_length(a_bodies, 1), 0)) AS k;
    UPDATE calls SET fence = a_fence, writer = a_writer, number = a_number, changed = clock_timestamp(),
        until = clock_timestamp() + a_lease * interval '1 second' WHERE id = c.id;
    RETURN 0;
END $$;

-- Delete calls that nobody has open and that did not change for some seconds.
CREATE OR REPLACE FUNCTION {schema}.forget_v1(a_age double precision)
RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
    WITH gone AS (
        DELETE FROM calls WHERE changed < clock_timestamp() - a_age * interval '1 second'
            AND (until IS NULL OR until <= clock_timestamp()) RETURNING 1
    ) SELECT count(*) FROM gone;
$$;
"""
"""Tables and functions; safe to run again, by several workers at a time."""
