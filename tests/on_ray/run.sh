#!/bin/bash
# The tests that need a real Ray cluster, in a network namespace with only the loopback device: Ray looks for the
# machine's outer address, and must not find one. In a process namespace, too: nothing of a cluster outlives them.
#
#   run.sh PYTHON [PYTEST ARGUMENT...]
#   run.sh PYTHON tests/benchmarks/runs_elsewhere.py [ARGUMENT...]
#
# PYTHON is one with this project's extras `dev` and `ray`.
set -euo pipefail
python="$(command -v "${1:?name a Python with the extras dev and ray}")" || {
  echo "$0: $1 cannot be run by this user" >&2
  exit 1
}
shift
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."
export OUTPOST_RAY_TESTS=1 RAY_AUTH_MODE=token RAY_AUTH_TOKEN="${RAY_AUTH_TOKEN:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}"
export RAY_USAGE_STATS_ENABLED=0 PATH="$(dirname "$python"):$PATH"
isolated=(unshare --net --pid --fork --kill-child --mount-proc)
# Root may do so where it is the machine's own; anybody may where user namespaces are allowed.
"${isolated[@]}" true 2>/dev/null || isolated+=(--user --map-root-user)
if ! "${isolated[@]}" true; then
  echo "$0: this machine allows no network namespace (unshare --net, or with --user), which these tests need;" \
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)" \
    "or run as root" >&2
  exit 1
fi
program=(-m pytest tests/on_ray -p no:cacheprovider "$@")
if [[ "${1:-}" == *.py ]]; then
  module="${1%.py}"
  shift
  program=(-m "${module//\//.}" "$@")
fi
# Processes of another namespace cannot be told from dead ones, so what is temporary is not shared with any.
TMPDIR="$(mktemp -d /tmp/outpost-XXXXXX)"
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
# The shell stays, because somebody has to reap what loses its parent.
"${isolated[@]}" bash -c '"$0" -c "
import fcntl, socket, struct
device = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(device, 0x8914, struct.pack(\"16sh\", b\"lo\", 0x41))
" && "$0" "$@"; exit $?' "$python" "${program[@]}"
