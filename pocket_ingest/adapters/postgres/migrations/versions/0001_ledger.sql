-- The ledger: uploads, jobs, receipts, outbox, audit. All of it lives in the schema "pocket", apart
-- from the datasets' own tables and from anything else that shares the database.

CREATE TABLE pocket.uploads (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset         text        NOT NULL,
    tenant          text        NOT NULL,
    source_key      text        NOT NULL,
    source_version  text        NOT NULL,
    pinned_key      text        NOT NULL,
    file_name       text        NOT NULL,
    size_bytes      bigint      NOT NULL CHECK (size_bytes >= 0),
    sha256          text        NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    partition_key   text        NOT NULL CHECK (partition_key ~ '^[A-Za-z0-9._-]+$'),
    same_content_as text,
    received_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (dataset, partition_key)
);
CREATE INDEX uploads_by_source ON pocket.uploads (dataset, tenant, source_key, id);
CREATE INDEX uploads_by_content ON pocket.uploads (dataset, tenant, sha256);

-- Every version of every object that was looked at, with the upload it was or turned out to be.
-- A listing is compared with this; no clock and no cursor decides what is new.
CREATE TABLE pocket.sightings (
    dataset        text        NOT NULL,
    source_key     text        NOT NULL,
    source_version text        NOT NULL,
    upload_id      bigint      NOT NULL REFERENCES pocket.uploads,
    seen_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (dataset, source_key, source_version)
);

CREATE TABLE pocket.import_jobs (
    id                  uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    upload_id           bigint      NOT NULL UNIQUE REFERENCES pocket.uploads,
    dataset             text        NOT NULL,
    tenant              text        NOT NULL,
    idempotency_key     text,
    state               text        NOT NULL DEFAULT 'queued' CHECK (state IN (
        'uploading', 'queued', 'validating', 'loading', 'exporting',
        'succeeded', 'failed', 'cancelled', 'quarantined')),
    attempt             integer     NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    -- workers lost since a person last asked for this job; bounds the automatic attempts
    losses              integer     NOT NULL DEFAULT 0,
    contract_version    text,
    queued_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at          timestamptz,
    verified_at         timestamptz,
    validated_at        timestamptz,
    loaded_at           timestamptz,
    exported_at         timestamptz,
    finished_at         timestamptz,
    claimed_by          text,
    run_id              text,
    claim_token         bigint      NOT NULL DEFAULT 0,
    lease_expires_at    timestamptz,
    cancel_requested_at timestamptz,
    error_code          text,
    error_summary       text,
    artifacts           jsonb       NOT NULL DEFAULT '{}',
    report              jsonb       NOT NULL DEFAULT '{}',
    records_read        bigint      CHECK (records_read >= 0),
    created             bigint      NOT NULL DEFAULT 0,
    updated             bigint      NOT NULL DEFAULT 0,
    unchanged           bigint      NOT NULL DEFAULT 0,
    duplicate           bigint      NOT NULL DEFAULT 0,
    stale               bigint      NOT NULL DEFAULT 0,
    conflict            bigint      NOT NULL DEFAULT 0,
    rejected            bigint      NOT NULL DEFAULT 0,
    UNIQUE (dataset, tenant, idempotency_key),
    -- Nothing disappears: every record of a finished job has exactly one outcome.
    CONSTRAINT outcomes_add_up CHECK (
        state <> 'succeeded' OR (
            records_read IS NOT NULL AND records_read
                = created + updated + unchanged + duplicate + stale + conflict + rejected)),
    CONSTRAINT finished_is_stamped CHECK (
        (state IN ('succeeded', 'failed', 'cancelled', 'quarantined')) = (finished_at IS NOT NULL)),
    CONSTRAINT failed_has_code CHECK (state <> 'failed' OR error_code IS NOT NULL)
);
CREATE INDEX import_jobs_unfinished ON pocket.import_jobs (dataset, tenant, upload_id)
    WHERE state <> 'succeeded' AND state <> 'cancelled';

CREATE TABLE pocket.batch_receipts (
    job_id       uuid        NOT NULL REFERENCES pocket.import_jobs,
    first_record bigint      NOT NULL CHECK (first_record >= 1),
    last_record  bigint      NOT NULL,
    attempt      integer     NOT NULL,
    created      bigint      NOT NULL,
    updated      bigint      NOT NULL,
    unchanged    bigint      NOT NULL,
    duplicate    bigint      NOT NULL,
    stale        bigint      NOT NULL,
    conflict     bigint      NOT NULL,
    rejected     bigint      NOT NULL,
    seconds      real        NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, first_record),
    CONSTRAINT batch_adds_up CHECK (
        last_record - first_record + 1
            = created + updated + unchanged + duplicate + stale + conflict + rejected)
);

CREATE TABLE pocket.outbox (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id        uuid        NOT NULL REFERENCES pocket.import_jobs,
    attempt       integer     NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    dispatched_at timestamptz,
    run_key       text
);
CREATE INDEX outbox_by_job ON pocket.outbox (job_id, attempt);
CREATE INDEX outbox_pending ON pocket.outbox (id) WHERE dispatched_at IS NULL;

CREATE TABLE pocket.audit_log (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text        NOT NULL,
    job_id     uuid        NOT NULL,
    upload_id  bigint      NOT NULL,
    run_id     text,
    attempt    integer     NOT NULL,
    event      text        NOT NULL,
    from_state text,
    to_state   text,
    details    jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_by_job ON pocket.audit_log (job_id, id);

CREATE TABLE pocket.dataset_tables (
    dataset          text        PRIMARY KEY,
    table_schema     text        NOT NULL,
    table_name       text        NOT NULL,
    contract_version text        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The audit log is append-only, for its owner too.
CREATE FUNCTION pocket.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of pocket.% is refused: it is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE
    ON pocket.audit_log FOR EACH STATEMENT EXECUTE FUNCTION pocket.refuse_change();

-- Who acts: the session says so with SET LOCAL pocket.actor; a change made by hand has the role.
CREATE FUNCTION pocket.actor() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('pocket.actor', true), ''), 'sql:' || current_user)
$$;

-- The state machine, guarded where nobody can walk around it. core/jobs.py has the same table.
CREATE FUNCTION pocket.guard_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (CASE OLD.state
        WHEN 'uploading'   THEN NEW.state IN ('queued', 'failed', 'cancelled')
        WHEN 'queued'      THEN NEW.state IN ('validating', 'loading', 'exporting', 'failed',
                                              'cancelled')
        WHEN 'validating'  THEN NEW.state IN ('loading', 'queued', 'failed', 'cancelled',
                                              'quarantined')
        WHEN 'loading'     THEN NEW.state IN ('exporting', 'queued', 'failed', 'cancelled',
                                              'quarantined')
        WHEN 'exporting'   THEN NEW.state IN ('succeeded', 'queued', 'failed', 'cancelled',
                                              'quarantined')
        WHEN 'failed'      THEN NEW.state = 'queued'
        WHEN 'quarantined' THEN NEW.state = 'queued'
        ELSE false
    END) THEN
        RAISE EXCEPTION 'a job cannot go from % to %', OLD.state, NEW.state
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state = 'succeeded' THEN
        PERFORM 1 FROM (
            SELECT coalesce(sum(last_record - first_record + 1), 0) AS records,
                   coalesce(sum(created), 0) AS created, coalesce(sum(updated), 0) AS updated,
                   coalesce(sum(unchanged), 0) AS unchanged,
                   coalesce(sum(duplicate), 0) AS duplicate, coalesce(sum(stale), 0) AS stale,
                   coalesce(sum(conflict), 0) AS conflict, coalesce(sum(rejected), 0) AS rejected
            FROM pocket.batch_receipts WHERE job_id = NEW.id) AS r
        WHERE (r.records, r.created, r.updated, r.unchanged, r.duplicate, r.stale, r.conflict,
               r.rejected)
            = (NEW.records_read, NEW.created, NEW.updated, NEW.unchanged, NEW.duplicate, NEW.stale,
               NEW.conflict, NEW.rejected);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'job %: the receipts do not add up to the job''s outcomes', NEW.id
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_transition BEFORE UPDATE OF state ON pocket.import_jobs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION pocket.guard_transition();

-- Each transition, cancel request and batch leaves its row, whoever makes it.
CREATE FUNCTION pocket.audit_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pocket.audit_log (actor, job_id, upload_id, run_id, attempt, event, from_state,
                                  to_state, details)
    SELECT pocket.actor(), NEW.id, NEW.upload_id, NEW.run_id, NEW.attempt,
           CASE WHEN TG_OP = 'INSERT' THEN 'registered'
                WHEN OLD.state IS DISTINCT FROM NEW.state THEN 'transition'
                WHEN OLD.claim_token <> NEW.claim_token THEN 'claimed'
                ELSE 'cancel_requested' END,
           CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, NEW.state,
           jsonb_strip_nulls(jsonb_build_object(
               'error_code', CASE WHEN NEW.state = 'failed' THEN NEW.error_code END,
               'reason', nullif(current_setting('pocket.reason', true), '')));
    RETURN NULL;
END $$;
CREATE TRIGGER audit_new_job AFTER INSERT ON pocket.import_jobs
    FOR EACH ROW EXECUTE FUNCTION pocket.audit_job();
CREATE TRIGGER audit_job AFTER UPDATE ON pocket.import_jobs FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state
          OR OLD.claim_token IS DISTINCT FROM NEW.claim_token
          OR OLD.cancel_requested_at IS DISTINCT FROM NEW.cancel_requested_at)
    EXECUTE FUNCTION pocket.audit_job();

CREATE FUNCTION pocket.audit_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pocket.audit_log (actor, job_id, upload_id, run_id, attempt, event, to_state, details)
    SELECT pocket.actor(), NEW.job_id, j.upload_id, j.run_id, NEW.attempt, 'batch', j.state,
           to_jsonb(NEW) - 'job_id' - 'attempt' - 'committed_at'
    FROM pocket.import_jobs j WHERE j.id = NEW.job_id;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_batch AFTER INSERT ON pocket.batch_receipts
    FOR EACH ROW EXECUTE FUNCTION pocket.audit_batch();
