# Sourced before the commands of the documentation. Each is run as printed, but for this:
# * a peer runs in the background, on a free port;
# * a subscription that goes on gets a Ctrl-C once it has shown something;
# * the monitor, which wants a terminal, is drawn once;
# * scenarios of many minutes are only checked: their options are parsed, not run;
# * what sets this environment up (pip, make) has been done.
set -Eeuo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
trap 'kill -INT $(jobs -p) 2>/dev/null || true; wait' EXIT

has() { # OPTION ARGUMENTS...
    local wanted=$1
    shift
    [[ " $* " == *" $wanted "* ]]
}

medusa() {
    if has monitor "$@"; then
        command medusa "$@" --once
    elif has subscribe "$@" && ! has --until "$@" && ! has --limit "$@"; then
        "$MEDUSA_PYTHON" "$MEDUSA_TESTS/docs_interrupt.py" medusa "$@"
    else
        command medusa "$@"
    fi
}

medusa-peer() {
    if [[ $1 == run ]]; then
        running=$((${running:-0} + 1))
        local log=peer$running.log
        "$MEDUSA_PYTHON" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' medusa-peer "$@" --listen 127.0.0.1:0 >"$log" 2>&1 &
        until grep -q "is up" "$log"; do
            kill -0 $! 2>/dev/null || { cat "$log" >&2; return 1; }
            sleep 0.1
        done
        cat "$log"
    else
        command medusa-peer "$@"
    fi
}

medusa-testnet() { "$MEDUSA_PYTHON" "$MEDUSA_TESTS/docs_parse.py" "$@"; }

program() {
    { echo "home = '$HOME/.medusa'"; cat; } >program.py
    "$@" "$MEDUSA_PYTHON" -u program.py
}

interrupted_program() { program "$MEDUSA_PYTHON" "$MEDUSA_TESTS/docs_interrupt.py"; }

pip() { :; }

make() { command make -n -C "$MEDUSA_REPOSITORY" "$@" >/dev/null; }
