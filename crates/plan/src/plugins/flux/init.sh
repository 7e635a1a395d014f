#!/bin/bash
# Prepares a pod for Flux. Runs in the image that holds Flux, before the training container starts; what it leaves below
# /mnt/flux is all that the training container gets to see of Flux.
set -eu

export PATH=/opt/view/bin:$PATH
shared=/mnt/flux
config=$shared/config

mkdir -p "$config/etc/flux/system/cron.d" "$config/etc/flux/config" "$config/etc/curve" \
  "$config/var/lib/flux" "$config/run/flux" "$shared/view"

echo '{{hosts}}' > "$config/etc/flux/system/hostlist"

cat > "$config/etc/flux/config/broker.toml" <<'BROKER'
[access]
allow-guest-user = true
allow-root-owner = true

[resource]
path = "/mnt/flux/config/etc/flux/system/R"

[bootstrap]
curve_cert = "/mnt/flux/config/etc/curve/curve.cert"
default_port = 8050
default_bind = "{{bind}}"
default_connect = "{{connect}}"
hosts = [
  { host = "{{hosts}}" },
]

[archive]
dbpath = "/mnt/flux/config/var/lib/flux/job-archive.sqlite"
period = "1m"
busytimeout = "50s"

[sched-fluxion-qmanager]
queue-policy = "{{policy}}"
BROKER

# /opt/view is a link to the only directory below /opt/views/._view, and links mean nothing in another image.
for view in /opt/views/._view/*/; do
  cp -R "$view". "$shared/view"
done
cp -R /opt/software "$shared/"

touch "$shared/flux-operator-done.txt"
