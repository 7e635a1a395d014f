#!/bin/sh
# Puts a built trainyard where a user's shell finds it, or takes it away again:
#
#   packaging/install.sh install BINARY PREFIX
#   packaging/install.sh uninstall PREFIX
#
# Binary, man pages and completions of bash, zsh and fish go under PREFIX, below $DESTDIR where that is set (for packages).
set -eu

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

verb=${1-} prefix=
case "$verb" in
install) binary=${2-} prefix=${3-} ;;
uninstall) prefix=${2-} ;;
esac
case "$prefix" in
/*) ;;
*) fail "usage: packaging/install.sh install BINARY PREFIX | uninstall PREFIX (PREFIX begins with /)" ;;
esac
root=${DESTDIR-}$prefix
program=$root/bin/trainyard
man=$root/share/man/man1
bash=$root/share/bash-completion/completions/trainyard
zsh=$root/share/zsh/site-functions/_trainyard
fish=$root/share/fish/vendor_completions.d/trainyard.fish
# links to them, for a link named sky to the binary; the file of zsh names both
sky_bash=$(dirname "$bash")/sky sky_fish=$(dirname "$fish")/sky.fish

remove() {
    for page in "$man"/trainyard.1 "$man"/trainyard-*.1 "$man"/trainyard.1.gz "$man"/trainyard-*.1.gz; do
        rm -f "$page"
    done
    rm -f "$program" "$bash" "$zsh" "$fish"
    ! is_ours "$sky_bash" trainyard || rm -f "$sky_bash"
    ! is_ours "$sky_fish" trainyard.fish || rm -f "$sky_fish"
}
# another program named sky may have its own
is_ours() { [ "$(readlink "$1")" = "$2" ]; }
link() { [ -e "$2" ] || [ -L "$2" ] || ln -s "$1" "$2"; }

if [ "$verb" = uninstall ]; then
    [ -e "$program" ] || fail "there is no trainyard under $root: nothing was removed (another place: make uninstall PREFIX=DIR)"
    remove
    say "removed trainyard from $root; jobs and their data stay (trainyard's home, by default ~/.local/share/trainyard)"
    exit 0
fi

[ -x "$binary" ] || fail "$binary is not there: build it first (make release)"
# the folders are made one by one: `install -D` is GNU's alone
for file in "$program" "$man/." "$bash" "$zsh" "$fish"; do
    mkdir -p "$(dirname "$file")" || fail "cannot write under $root: choose another place (make install PREFIX=DIR)"
done
# pages of commands that are no more
remove
# a new file in its place: a binary that runs cannot be written over
install -m 755 "$binary" "$program.new"
mv -f "$program.new" "$program"
"$program" man --dir "$man"
"$program" completions bash >"$bash"
"$program" completions zsh >"$zsh"
"$program" completions fish >"$fish"
link trainyard "$sky_bash"
link trainyard.fish "$sky_fish"
[ -z "${DESTDIR-}" ] || exit 0

say "installed trainyard in $prefix: bin/trainyard, man pages, completions of bash, zsh and fish"
case ":$PATH:" in
*":$prefix/bin:"*)
    found=$(command -v trainyard || true)
    [ "$found" -ef "$program" ] || say "another trainyard comes before it on your PATH: $found"
    ;;
*)
    say "$prefix/bin is not on your PATH. For this shell, and in ~/.profile (or ~/.bashrc, ~/.zshrc) for those to come:"
    say "  export PATH=\"$prefix/bin:\$PATH\""
    ;;
esac
case "$prefix" in
/usr | /usr/local) ;;
*)
    # bash and fish look below $XDG_DATA_HOME by themselves, man beside what is on the PATH
    say "zsh completes once ~/.zshrc says, before compinit: fpath=(\"$prefix/share/zsh/site-functions\" \$fpath)"
    ;;
esac
