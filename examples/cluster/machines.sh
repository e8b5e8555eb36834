#!/bin/bash
# One part of a cluster on this machine: `machines.sh head`, `machines.sh worker HEAD`, `machines.sh face HEAD`.
# RAY_AUTH_TOKEN (Ray's own, the same everywhere) and, for the face, OUTPOST_RAY_TOKEN have to be set.
set -euo pipefail
: "${RAY_AUTH_TOKEN:?make one with: ray get-auth-token --generate}"
export RAY_AUTH_MODE=token

case "${1:-}" in
  head)
    # A machine that falls silent is missed within seconds, not after a minute.
    export RAY_health_check_period_ms=1000 RAY_health_check_timeout_ms=2000 RAY_health_check_failure_threshold=3
    exec ray start --head --port=6379 --resources='{"outpost_face": 1}' --include-dashboard=false \
      --disable-usage-stats --block
    ;;
  worker)
    exec outpost-lsp worker --ray "${2:?name the head}:6379" --slots "${SLOTS:-4}" --shell
    ;;
  face)
    exec outpost-lsp face --ray "${2:?name the head}:6379" --listen "${LISTEN:-127.0.0.1:8443}" \
      ${CERTIFICATE:+--certificate "$CERTIFICATE" --key "$KEY"}
    ;;
  *)
    echo "usage: machines.sh head | worker HEAD | face HEAD" >&2
    exit 2
    ;;
esac
