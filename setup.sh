#!/bin/sh
# What the Makefile needs from the machine: `setup.sh venv DIR` makes a Python environment,
# `setup.sh java` finds Java 17 or later, or has the package manager install it.
set -eu

MIN_JAVA=17

say() { printf '%s\n' "$*" >&2; }

# Run a command as root: directly, through sudo where it asks no password, or not at all.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# Install the first package that this machine's package manager has; $1.. = manager:package.
install_one() {
    for choice in "$@"; do
        manager=${choice%%:*}
        package=${choice#*:}
        command -v "$manager" >/dev/null 2>&1 || continue
        say "installing $package with $manager"
        case $manager in
            apt-get)
                as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
                    --no-install-recommends "$package" >/dev/null 2>&1 && return 0
                as_root apt-get -qq update >/dev/null 2>&1 || continue
                as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
                    --no-install-recommends "$package" >/dev/null && return 0 ;;
            dnf | yum | zypper) as_root "$manager" -q -y install "$package" >/dev/null && return 0 ;;
            apk) as_root apk add -q "$package" && return 0 ;;
            pacman) as_root pacman -S --noconfirm --needed "$package" >/dev/null && return 0 ;;
            brew) brew install -q "$package" >/dev/null && return 0 ;;
        esac
    done
    return 1
}

# --- Python -------------------------------------------------------------------------------------

good_python() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        if good_python "$name"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

make_venv() {
    [ -x "$1/bin/python" ] && good_python "$1/bin/python" && return 0
    if ! python=$(find_python); then
        say "Python 3.11 or later is needed: install it, or name it with PYTHON=/path/to/python make"
        exit 1
    fi
    # Debian and its kin ship Python without the module that makes environments with pip.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        if ! install_one "apt-get:python$version-venv"; then
            say "$python has no venv module: install it (Debian: apt-get install python$version-venv)"
            exit 1
        fi
    fi
    "$python" -m venv "$1"
}

# --- Java ---------------------------------------------------------------------------------------

# The major version of the Java in a home folder, from its release file; 0 when there is none.
java_version() {
    [ -x "$1/bin/java" ] || { echo 0; return; }
    version=$(sed -n 's/^JAVA_VERSION="\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' "$1/release" 2>/dev/null)
    if [ -z "$version" ]; then
        version=$("$1/bin/java" -version 2>&1 |
            sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
    fi
    echo "${version:-0}"
}

java_homes() {
    [ -n "${JAVA_HOME:-}" ] && echo "$JAVA_HOME"
    # /usr/bin/java on macOS is a stub that only says what to install; java_home knows better.
    if [ -x /usr/libexec/java_home ]; then
        /usr/libexec/java_home -v "$MIN_JAVA+" 2>/dev/null || true
    elif command -v java >/dev/null 2>&1; then
        path=$(command -v java)
        path=$(readlink -f "$path" 2>/dev/null || echo "$path")
        dirname "$(dirname "$path")"
    fi
    for folder in /usr/lib/jvm/* /usr/java/* /opt/java/* /opt/jdk* "$HOME"/.sdkman/candidates/java/* \
        "$HOME"/.jdks/* /opt/homebrew/opt/openjdk* /usr/local/opt/openjdk* \
        /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        [ -d "$folder" ] && echo "$folder"
    done
    return 0
}

find_java() {
    java_homes | while IFS= read -r folder; do
        if [ "$(java_version "$folder")" -ge "$MIN_JAVA" ] 2>/dev/null; then
            echo "$folder"
            break
        fi
    done
}

need_java() {
    [ -n "$(find_java)" ] && return 0
    install_one apt-get:openjdk-17-jre-headless apt-get:openjdk-21-jre-headless \
        apt-get:default-jre-headless dnf:java-21-openjdk-headless dnf:java-17-openjdk-headless \
        dnf:java-latest-openjdk-headless yum:java-17-openjdk-headless \
        zypper:java-17-openjdk-headless apk:openjdk17-jre-headless \
        pacman:jre17-openjdk-headless brew:openjdk@17 || true
    [ -n "$(find_java)" ] && return 0
    say "Java $MIN_JAVA or later is needed: install it (Debian, Ubuntu: sudo apt-get install" \
        "openjdk-17-jre-headless; Fedora: sudo dnf install java-21-openjdk-headless; macOS: brew" \
        "install openjdk@17), or set JAVA_HOME"
    exit 1
}

case ${1:-} in
    venv) make_venv "${2:?usage: setup.sh venv DIR}" ;;
    java) need_java ;;
    *)
        say "usage: setup.sh venv DIR | setup.sh java"
        exit 2
        ;;
esac
