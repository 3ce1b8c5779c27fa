#!/bin/bash
# Takes a node out of service that Paceline named, and lets the jobs on it begin again elsewhere.
#   deploy/slurm/drain.sh NODE INCIDENT [--requeue] [--dry-run]
# Without --requeue the node is drained when its jobs end. With it jobs that may be requeued are: a job
# that writes checkpoints loses the steps since the last one. --dry-run prints what would be run.
set -euo pipefail

usage() {
  echo "usage: drain.sh NODE INCIDENT [--requeue] [--dry-run]" >&2
  exit 2
}

run() {
  if [[ "$dry_run" == yes ]]; then
    printf '%q ' "$@" | sed 's/ $//'
    echo
  else
    "$@"
  fi
}

[[ $# -ge 2 ]] || usage
node="$1" incident="$2" requeue=no dry_run=no
shift 2
for option in "$@"; do
  case "$option" in
    --requeue) requeue=yes ;;
    --dry-run) dry_run=yes ;;
    *) usage ;;
  esac
done
# One node: `ALL` would drain the cluster, a range like gpu[1-99] a rack.
if [[ ! "$node" =~ ^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$ || "${node,,}" =~ ^(all|none|default)$ ]]; then
  echo "drain.sh: '$node' does not name one node" >&2
  exit 2
fi
if [[ ! "$incident" =~ ^[0-9]+$ ]]; then
  echo "drain.sh: '$incident' is no number of an incident" >&2
  exit 2
fi

run scontrol update "nodename=$node" state=drain "reason=paceline-incident-$incident"
if [[ "$requeue" == yes ]]; then
  jobs="$(squeue --noheader --nodelist "$node" --states running --format %A | sort -u)"
  for job in $jobs; do
    run scontrol requeue "$job" || echo "drain.sh: job $job cannot be requeued; it runs to its end" >&2
  done
fi
