#!/usr/bin/env bash
# How well an MPIJob scales: the same work for each rank, in one worker and in many. Prints the efficiency, the time of one worker
# divided by that of many, from the first rank's beginning to the last one's end; exits with 1 if it is below LEAST percent.
#
#   tests/performance/scaling_efficiency.sh          WORKERS=8 STEPS=60000000 RUNS=5 LEAST=85 TRAINYARD=target/release/trainyard
#
# Both get the same processors: as many cores as there are workers, the control plane's among them, and for each rank a session, for
# that is what Linux shares its processors among (sched_autogroup_enabled). They take turns, and each is first in every second one.
#
# With fewer cores than workers the ranks wait for each other, whoever starts them. Then the same ranks under a bare mpirun are what
# many workers are compared with: what is left is what the platform costs, and the output says so.
set -euo pipefail
WORKERS=${WORKERS:-8} STEPS=${STEPS:-60000000} RUNS=${RUNS:-5} LEAST=${LEAST:-85}
TRAINYARD=$(realpath "${TRAINYARD:-$(dirname "$0")/../../target/release/trainyard}")
command -v mpirun >/dev/null || { echo "there is no mpirun: apt-get install openmpi-bin" >&2; exit 2; }

# the first of the cores that we may have
cores=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- -v most="$WORKERS" '{ for (i = $1; i <= $NF && n < most; i++) list = list (n++ ? "," : "") i } END { print list }')
taskset -cp "$cores" $$ >/dev/null

folder=$(mktemp -d)
export TRAINYARD_HOME=$folder/home
trap '"$TRAINYARD" down >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
cat >"$folder/rank" <<RANK
#!/bin/sh
[ "\$1" = own-session ] || exec setsid --wait "\$0" own-session
begin=\$(date +%s.%N)
awk 'BEGIN { for (i = 0; i < $STEPS; i++) sum += i * i }'
echo "rank \$begin \$(date +%s.%N) \$(grep -m 1 -e '^[0-9]*:cpu[,:]' -e '^0::' /proc/self/cgroup)"
RANK
chmod +x "$folder/rank"

# from the first beginning to the last end; $1: how many ranks must have spoken
span() {
    awk -v ranks="$1" -v groups="$folder/groups" '/rank [0-9]/ { sub(/.*rank /, ""); n++; print $3 >> groups; if (!begin || $1 < begin) begin = $1; if ($2 > end) end = $2 }
        END { if (n != ranks) { print n + 0 " of " ranks " ranks spoke" > "/dev/stderr"; exit 1 } printf "%.3f\n", end - begin }'
}
job() { # WORKERS
    local name=scaling-$((++jobs))
    "$TRAINYARD" mpijob create "$name" --workers "$1" --image none --command "mpirun --oversubscribe --bind-to none -n $1 $folder/rank" >/dev/null
    "$TRAINYARD" mpijob logs "$name" --follow >"$folder/out"
    # workers listen until their job is gone, whatever becomes of the control plane
    "$TRAINYARD" mpijob delete "$name" >/dev/null
    span "$1" <"$folder/out"
}
one() { OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none -n "$1" "$folder/rank" | span "$1"; }
median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

jobs=0
"$TRAINYARD" up --detach >/dev/null
if [ "$(nproc)" -ge "$WORKERS" ]; then
    # what a core does undisturbed; `mpijob create` makes no job of a single worker
    against="one rank"; alone=1
else
    echo "$(nproc) cores for $WORKERS workers: this is the platform's overhead alone, beside the same ranks under a bare mpirun"
    against="bare mpirun, $WORKERS ranks"; alone=$WORKERS
fi
for run in $(seq "$RUNS"); do
    [ $((run % 2)) = 0 ] || one "$alone" >>"$folder/one"
    job "$WORKERS" >>"$folder/many"
    [ $((run % 2)) = 1 ] || one "$alone" >>"$folder/one"
done
echo "$against: $(paste -sd ' ' "$folder/one") s; $WORKERS workers: $(paste -sd ' ' "$folder/many") s"
[ "$(sort -u "$folder/groups" | wc -l)" = 1 ] || echo "they are in control groups of their own, which share the processors as those groups say"
awk -v one="$(median <"$folder/one")" -v many="$(median <"$folder/many")" -v least="$LEAST" -v workers="$WORKERS" -v against="$against" -v load="$(cut -d' ' -f1 /proc/loadavg)" \
    'BEGIN { share = 100 * one / many; printf "%d workers: %.2f s; %s: %.2f s; efficiency %.0f %% (aim %d %%), load %s\n", workers, many, against, one, share, least, load; exit share < least }'
