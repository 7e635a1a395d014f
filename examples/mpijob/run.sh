#!/bin/sh
# examples/mpijob/run.sh TRAINYARD: the Open MPI example on a control plane of its own, which is gone afterwards.
set -eu
program=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
TRAINYARD_HOME=$(mktemp -d)
export TRAINYARD_HOME
unset KUBECONFIG
trap '"$program" down >/dev/null 2>&1; rm -rf "$TRAINYARD_HOME"' EXIT
"$program" up --detach >/dev/null
kubectl --kubeconfig "$TRAINYARD_HOME/kubeconfig" apply -f "$here/openmpi.yaml"
"$program" mpijob logs digits-openmpi --follow
