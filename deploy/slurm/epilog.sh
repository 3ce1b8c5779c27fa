#!/bin/bash
# Slurm's Epilog: stops the sidecar of a user whose last job on this node is over. It always
# succeeds: an epilog that fails drains the node. What the sidecar could not send stays in its
# spool, and the next one sends it.
LOG_TAG=paceline-epilog
UNIT="paceline-sidecar@${SLURM_JOB_USER:-}.service"

say() { logger -t "$LOG_TAG" -- "$1" 2>/dev/null || echo "$LOG_TAG: $1" >&2; }

main() {
  [[ "${SLURM_JOB_USER:-}" =~ ^[A-Za-z_][A-Za-z0-9_.-]*$ ]] || return 0
  local node="${SLURMD_NODENAME:-$(hostname -s)}" others
  # Not known is not none: then it stays, and costs next to nothing.
  others="$(timeout 10 squeue --noheader --user "$SLURM_JOB_USER" --nodelist "$node" \
    --states running,suspended --format %A)" || return 1
  if [[ -z "$(grep -vx "${SLURM_JOB_ID:-0}" <<< "$others" | tr -d '[:space:]')" ]]; then
    timeout 10 systemctl stop --no-block "$UNIT"
  fi
}

main || say "the sidecar of ${SLURM_JOB_USER:-?} was not stopped; the next job uses it"
exit 0
