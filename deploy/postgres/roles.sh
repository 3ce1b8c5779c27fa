#!/bin/sh
# First start of the database: the collector's role, which owns it, and Grafana's, which may read
# what the collector grants it. Run by the postgres image from /docker-entrypoint-initdb.d.
set -eu
: "${PACELINE_DB_PASSWORD:?}" "${PACELINE_READER_PASSWORD:?}"

# The passwords travel on standard input: no process list shows them, and psql quotes them.
psql -v ON_ERROR_STOP=1 --quiet --username "$POSTGRES_USER" --dbname postgres <<'SQL'
\set owner_password `echo "$PACELINE_DB_PASSWORD"`
\set reader_password `echo "$PACELINE_READER_PASSWORD"`
CREATE ROLE paceline LOGIN PASSWORD :'owner_password';
CREATE ROLE paceline_reader LOGIN PASSWORD :'reader_password';
ALTER ROLE paceline_reader SET default_transaction_read_only = on;
-- A panel that asks for too much must not keep the collector waiting.
ALTER ROLE paceline_reader SET statement_timeout = '15s';
ALTER ROLE paceline_reader CONNECTION LIMIT 20;
CREATE DATABASE paceline OWNER paceline;
REVOKE ALL ON DATABASE paceline FROM PUBLIC;
GRANT CONNECT ON DATABASE paceline TO paceline_reader;
SQL
