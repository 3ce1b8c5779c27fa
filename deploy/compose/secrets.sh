#!/bin/sh
# Makes the secrets of docker-compose.yml, once: .env and .secrets/ at the repository's root.
#   deploy/compose/secrets.sh && docker compose --profile demo up -d --build
# What is there stays as it is. To change a password of the database, change it there as well.
set -eu
cd "$(dirname "$0")/../.."
umask 077

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

if [ -e .env ]; then
  echo "secrets.sh: .env exists; nothing is changed" >&2
else
  {
    for name in PACELINE_TOKEN PACELINE_INGEST_TOKEN PACELINE_READ_TOKEN \
      PACELINE_DB_PASSWORD PACELINE_READER_PASSWORD POSTGRES_PASSWORD; do
      echo "$name=$(random)"
    done
  } > .env.new
  mv .env.new .env
  echo "secrets.sh: wrote .env"
fi

# A file and no variable: compose copies variables into the container, which read-only ones refuse.
token="$(sed -n 's/^PACELINE_READ_TOKEN=//p' .env)"
if [ -z "$token" ]; then
  echo "secrets.sh: .env has no PACELINE_READ_TOKEN; add one (openssl rand -hex 32)" >&2
  exit 1
fi
mkdir -p .secrets
rm -f .secrets/paceline_token
printf '%s' "$token" > .secrets/paceline_token
# Prometheus reads it as nobody; the directory keeps everybody else on this machine out.
chmod 0444 .secrets/paceline_token
