# What is done on a machine that is reached by SSH or in a pod, by the shell sh of its user. Variables that come first: token; and by function
# record (claim), sha256 (adopt, upload, start), kubeconfig and node (start), goal (aim). For a pod: slot (the name of the folder), size (of
# the program), address, capacity. The last line calls a function.
set -u
umask 077
LC_ALL=C
export LC_ALL
base=${HOME:-/root}/.trainyard-machine
dir=$base/${slot:-$(uname -n)}
unset CDPATH

settle() { sync "$@" 2>/dev/null || sync; }
say() { printf '%s=%s\n' "$1" "$2"; }
# the exit code says what is to become of it
fail() { say error "$2"; exit "$1"; }
THEIRS=10 ABSENT=11 FULL=12 TORN=13 UNFIT=14 DEAD=15 STUCK=16 LATE=17

# calls that were given up may still be under way: one at a time
lock() {
  command -v flock >/dev/null 2>&1 || return 0
  exec 9<"$dir" && flock 9
}

held() {
  [ -f "$dir/claim" ] && read -r holder <"$dir/claim" && [ "$holder" = "$token" ] || fail $ABSENT 'there is no claim of this machine here'
  dir=$(cd -P "$dir" && pwd)
}

# what the machine is to be, and by which wish: a call of a process that was killed may come after those of the next one. One that is to go
# goes, whatever is wished later
aimed() {
  had='' since=0
  { read -r had && read -r since; } <"$dir/goal" 2>/dev/null
  case $since in '' | *[!0-9]*) since=0 ;; esac
}

aim() {
  held
  lock
  held
  aimed
  [ "$had" = gone ] && return 0
  [ "$goal" = gone ] || [ "${generation:-0}" -ge "$since" ] || fail $LATE "wish $generation comes too late: $since was the last one"
  printf '%s\n%s\n' "$goal" "${generation:-0}" >"$dir/goal.new" && mv -f "$dir/goal.new" "$dir/goal" || fail $FULL "cannot write $dir/goal"
  settle "$dir/goal" "$dir"
}

agent() {
  pid=$(cat "$dir/node/agent.lock" 2>/dev/null) && [ -n "$pid" ] || return 1
  case $(readlink "/proc/$pid/exe" 2>/dev/null) in "$dir/program"*) return 0 ;; esac
  return 1
}

# what was received and checked is not read again: a program is replaced by another file, never changed
summed() { stat -c '%i %s %y %z' "$dir/program" 2>/dev/null; }

sum_of() {
  sum='' of='' is=$(summed)
  { read -r sum && read -r of; } <"$dir/program.sum" 2>/dev/null
  if [ -n "$is" ] && [ "$of" = "$is" ]; then printf %s "$sum"; else sha256sum "$dir/program" 2>/dev/null | cut -d' ' -f1; fi
}

note_sum() { { printf '%s\n' "$sha256" && summed; } >"$dir/program.sum" 2>/dev/null || rm -f "$dir/program.sum"; }

look() {
  say cpus "$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"
  say memory "$(awk '/^MemTotal:/ {print $2}' /proc/meminfo)"
  say disk "$(df -Pk "${HOME:-/root}" 2>/dev/null | awk 'END {print $4}')"
  say system "$(uname -s) $(uname -m)"
  # shellcheck disable=SC2086
  set -- ${SSH_CONNECTION:-}
  say address "${address:-${3:-}}"
  if command -v nvidia-smi >/dev/null 2>&1; then
    limit=
    command -v timeout >/dev/null 2>&1 && limit='timeout 15'
    $limit nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null </dev/null | while read -r name; do say gpu "$name"; done
  fi
  # a claim that cannot be looked for is not a claim that is gone
  [ -d "${HOME:-/root}" ] || fail $STUCK "the home directory ${HOME:-/root} is not there"
  [ -f "$dir/claim" ] || return 0
  read -r holder <"$dir/claim" || fail $STUCK "cannot read $dir/claim"
  dir=$(cd -P "$dir" && pwd)
  say dir "$dir"
  { read -r holder && say holder "$holder"; read -r record && say record "$record"; } <"$dir/claim"
  aimed
  say goal "$had"
  say sha256 "$(sum_of)"
}

# a link to a whole file is made once or not at all, on all file systems that machines share
claim() {
  mkdir -p "$dir" || fail $FULL "cannot make $dir"
  if [ ! -f "$dir/claim" ]; then
    { printf '%s\n%s\n' "$token" "$record" >"$dir/claim.$token" && settle "$dir/claim.$token"; } || {
      rm -f "$dir/claim.$token"
      rmdir "$dir" "$base" 2>/dev/null
      fail $FULL "cannot write $dir/claim"
    }
    ln "$dir/claim.$token" "$dir/claim" 2>/dev/null
    rm -f "$dir/claim.$token"
    settle "$dir"
  fi
  read -r holder <"$dir/claim" || fail $STUCK "cannot read $dir/claim"
  if [ "$holder" != "$token" ]; then
    { read -r holder; read -r record; } <"$dir/claim"
    say record "$record"
    fail $THEIRS 'it is taken'
  fi
}

# an image may bring the program along
adopt() {
  held
  found=$(command -v trainyard 2>/dev/null) || return 0
  [ "$(sha256sum "$found" | cut -d' ' -f1)" = "$sha256" ] || return 0
  cp "$found" "$dir/program.$$" && chmod 700 "$dir/program.$$" && mv -f "$dir/program.$$" "$dir/program" || fail $FULL "cannot write $dir/program"
  note_sum
  say sha256 "$sha256"
}

# input that has no end has a size
received() { if [ -n "${size:-}" ]; then head -c "$size"; else cat; fi; }

upload() {
  held
  received >"$dir/program.$$" || {
    rm -f "$dir/program.$$"
    fail $FULL "cannot write $dir/program"
  }
  if [ "$(sha256sum "$dir/program.$$" | cut -d' ' -f1)" != "$sha256" ]; then
    rm -f "$dir/program.$$"
    fail $TORN 'the program did not arrive whole'
  fi
  chmod 700 "$dir/program.$$"
  why=$("$dir/program.$$" --version 2>&1 </dev/null) || {
    rm -f "$dir/program.$$"
    fail $UNFIT "the program does not run there: $(printf %s "$why" | tail -1)"
  }
  mv -f "$dir/program.$$" "$dir/program" || fail $FULL "cannot write $dir/program"
  note_sum
}

end_agent() {
  agent || return 0
  kill "$pid" 2>/dev/null
  tries=0
  while agent; do
    tries=$((tries + 1))
    [ $tries -gt 100 ] && kill -9 "$pid" 2>/dev/null
    [ $tries -gt 200 ] && fail $STUCK "the agent, process $pid, does not end"
    sleep 0.1
  done
}

# a session that was cut holds the port of its tunnel until the machine gives it up
session() {
  born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
  if read -r old when <"$dir/session"; then
    [ "$old" != $PPID ] && [ -n "$when" ] && [ "$(born "$old")" = "$when" ] && kill "$old" 2>/dev/null
  fi 2>/dev/null
  printf '%s %s\n' $PPID "$(born $PPID)" >"$dir/session" || fail $FULL "cannot write $dir/session"
}

enter() {
  held
  lock
  held
  # the other end of a pod's tunnel looks by itself whether it is of use
  [ -n "${slot:-}" ] || session
  say port "$(cat "$dir/port" 2>/dev/null)"
}

start() {
  held
  lock
  held
  aimed
  [ -z "$had" ] || fail $ABSENT 'the machine is not to run'
  if agent && [ "$(cat "$dir/node.of" 2>/dev/null)" = "$node $sha256" ]; then return 0; fi
  end_agent
  mkdir -p "$dir/home" "$dir/node" || fail $FULL "cannot make $dir/home"
  { printf '%s' "$kubeconfig" >"$dir/kubeconfig" && printf '%s\n' "$port" >"$dir/port" && printf '%s\n' "$node $sha256" >"$dir/node.of"; } ||
    fail $FULL "cannot write $dir/kubeconfig"
  # shellcheck disable=SC2086
  set -- ${SSH_CONNECTION:-}
  address=${address:-${3:-}}
  case $address in *:* | '') set -- ;; *) set -- --address "$address" ;; esac
  [ -z "${capacity:-}" ] || set -- "$@" --capacity "$capacity"
  new=
  command -v setsid >/dev/null 2>&1 && new=setsid
  (
    cd "$dir/home" || exit 1
    HOME=$dir/home exec $new "$dir/program" node --kubeconfig "$dir/kubeconfig" --data "$dir/node" "$@" >"$dir/agent.log" 2>&1 </dev/null 9<&-
  ) &
  tries=0
  while ! agent; do
    tries=$((tries + 1))
    if [ $tries -gt 300 ] || ! kill -0 $! 2>/dev/null; then
      fail $DEAD "the agent does not start: $(tail -1 "$dir/agent.log")"
    fi
    sleep 0.1
  done
}

pods() {
  [ -d "$dir/node" ] || return 0
  [ -x "$dir/program" ] || fail $STUCK "$dir/program is missing, so what runs in $dir/node cannot be ended"
  why=$("$dir/program" node --data "$dir/node" --stop 2>&1 </dev/null 9<&-) || fail $STUCK "$(printf %s "$why" | tail -1)"
}

stop() {
  goal=stopped
  aim
  held
  pods
}

# also folders that may not be written: Go's module cache makes such ones. Each is opened before it is looked into
remove() {
  rm -rf "$1" 2>/dev/null && return 0
  find "$1" -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null
  rm -rf "$1"
}

end() {
  rm -f "$dir/claim.$token"
  [ -e "$dir/claim" ] || rmdir "$dir" "$base" 2>/dev/null
  goal=gone
  aim
  held
  pods
  for entry in "$dir"/* "$dir"/.[!.]*; do
    case $entry in */claim | */goal) ;; *) remove "$entry" || fail $STUCK "cannot remove $entry" ;; esac
  done
  cd / && rm -f "$dir/goal" "$dir/claim" && settle "$dir"
  rmdir "$dir" 2>/dev/null
  rmdir "$base" 2>/dev/null
  return 0
}

echo trainyard-host
