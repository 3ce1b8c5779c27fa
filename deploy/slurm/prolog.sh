#!/bin/bash
# Slurm's Prolog: starts the sidecar of the job's user on this node. In slurm.conf:
#   Prolog=/etc/slurm/prolog.d/*   Epilog=/etc/slurm/epilog.d/*   PrologFlags=Alloc
# It always succeeds, and soon: a prolog that fails drains the node, and training comes first.
LOG_TAG=paceline-prolog
UNIT="paceline-sidecar@${SLURM_JOB_USER:-}.service"

say() { logger -t "$LOG_TAG" -- "$1" 2>/dev/null || echo "$LOG_TAG: $1" >&2; }

main() {
  # Names of users are root's business, but this one goes into the name of a unit.
  [[ "${SLURM_JOB_USER:-}" =~ ^[A-Za-z_][A-Za-z0-9_.-]*$ ]] || return 0
  [[ -r /etc/paceline/sidecar.env ]] || return 0
  install -d -m 0711 /var/spool/paceline
  install -d -m 0700 -o "$SLURM_JOB_USER" "/var/spool/paceline/$SLURM_JOB_USER"
  # A second job of the same user on this node shares it.
  timeout 10 systemctl start --no-block "$UNIT"
}

main || say "the sidecar of ${SLURM_JOB_USER:-?} was not started; job ${SLURM_JOB_ID:-?} runs without it"
exit 0
