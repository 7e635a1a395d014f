#!/bin/bash
# Starts Flux in the training container and, on the first host, the training command under it. The first argument is the
# command as shell words; further arguments belong to it as they are.

shared=/mnt/flux
view=$shared/view
config=$shared/config
broker=$config/etc/flux/config
system=$config/etc/flux/system
socket=local://$config/run/flux/local

# After the image's own programs: its Python and MPI stay what they are.
export PATH=$PATH:$view/bin

# Programs of the view expect each other where they were built.
mkdir -p /opt/software
cp -R "$shared/software/." /opt/software/

# Flux's commands need the Python that came with them; the view's own links to it are broken here.
library=$(find "$view/lib" -maxdepth 1 -type d -name 'python3*' | head -n 1)
python=$view/bin/$(basename "$library")
if [ -f "$python" ]; then
  rm -f "$view/bin/python" "$view/bin/python3"
  ln -sf "$python" "$view/lib/python"
  ln -sf "$python" "$view/lib/python3"
fi
export PYTHONPATH=${PYTHONPATH:-}:$library/site-packages
export FLUX_RC_EXTRA=$view/etc/flux/rc1.d

# For people who open a shell here: `. /mnt/flux/flux-view.sh; flux proxy $fluxsocket bash`.
cat > "$shared/flux-view.sh" <<VIEW
export PATH=$PATH
export PYTHONPATH=$PYTHONPATH
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$view/lib
export fluxsocket=$socket
VIEW
cat > "$shared/load-fluxion.sh" <<'FLUXION'
flux module remove sched-simple
flux module load sched-fluxion-resource
flux module load sched-fluxion-qmanager
FLUXION

# Flux refuses a certificate that others can read.
certificate=$config/etc/curve/curve.cert
rm -f "$certificate"
cp /curve/curve.cert "$certificate"
chmod u=rw,go= "$certificate"
chown "$(id -u)" "$certificate"

flux R encode --hosts="$(cat "$system/hostlist")" {{resources}} > /tmp/R && mv /tmp/R "$system/R"

export STATE_DIR=$config/var/lib/flux
export FLUX_OUTPUT_DIR=/tmp/fluxout
mkdir -p "$STATE_DIR" "$FLUX_OUTPUT_DIR" "$system/cron.d"

options=(
  "-Scron.directory=$system/cron.d"
  -Stbon.fanout=256
  "-Srundir=$config/run/flux"
  "-Sstatedir=$STATE_DIR"
  "-Slocal-uri=$socket"
  -Slog-stderr-level=0
  -Slog-stderr-mode=local
)

command=${1:-}
shift
eval "set -- $command \"\$@\""

if [ "$(hostname)" != "{{lead}}" ]; then
  # The first host may be up later than this one, or come back after a restart.
  until flux start -o --config "$broker" "${options[@]}"; do
    echo "Flux ended with exit code $?; trying again in 15 s"
    sleep 15
  done
  status=0
elif [ $# -eq 0 ]; then
  # No command: an instance to work in by hand.
  flux broker --config-path "$broker" "${options[@]}"
  status=$?
else
  flux start -o --config "$broker" "${options[@]}" flux run {{flags}} "$@"
  status=$?
fi

touch "$shared/flux-operator-complete.txt"
exit "$status"
