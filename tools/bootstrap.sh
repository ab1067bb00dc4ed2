#!/bin/sh
# What the build needs from the machine, and the virtual environment.
#
#   tools/bootstrap.sh              Python >= 3.11 with headers and venv, a C++17 compiler; makes .venv
#   tools/bootstrap.sh java         the same, and a Java 17+ runtime
#   tools/bootstrap.sh spin         the model checker SPIN, for tests/models; without it they are skipped,
#                                   and the exit status is 0
#   tools/bootstrap.sh servers      PostgreSQL and Redis, for the tests of streams; without them those are
#                                   skipped, and the exit status is 0
#   tools/bootstrap.sh java-home    print the JAVA_HOME to run with; nothing where the java on PATH will do
#
# What is missing is installed as the distribution's package where that may be done without asking (root, or
# sudo that asks for no password). Otherwise one sentence names the command to type, and the exit status is
# 1.
# A python of your own choice: PYTHON=/path/to/python make develop. Nothing is read from the keyboard.
set -u
cd "$(dirname "$0")/.." || exit 1
VENV=.venv

stop() { printf '%s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# ---- what is there ----------------------------------------------------------------------------------------

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if have "$candidate" && is_new_enough "$candidate"; then printf '%s' "$candidate"; return 0; fi
    done
    return 1
}

has_headers() {
    "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' >/dev/null 2>&1
}

has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# The very compiler that setuptools will call for this Python, tried on a C++17 program.
has_compiler() {
    compiler=${CXX:-$("$1" -c 'import sysconfig as s; print(s.get_config_var("CXX") or "c++")' 2>/dev/null)}
    printf '#include <atomic>\n#include <optional>\nstd::optional<std::atomic<int>*> x;\n' |
        ${compiler:-c++} -std=c++17 -x c++ -fsyntax-only - >/dev/null 2>&1
}

java_major() {
    "$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

java_is_new_enough() {
    major=$(java_major "$1")
    [ "${major:-0}" -ge 17 ] 2>/dev/null
}

# Sets JAVA_FOUND: empty where the java that Spark would start anyway will do, else a JAVA_HOME. Fails where
# there is none.
find_java() {
    JAVA_FOUND=
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] &&
        java_is_new_enough "$JAVA_HOME/bin/java"; then
        JAVA_FOUND=$JAVA_HOME
        return 0
    fi
    if have java && java_is_new_enough java; then return 0; fi
    for home in "$(/usr/libexec/java_home -v 17+ 2>/dev/null)" /usr/lib/jvm/* /opt/homebrew/opt/openjdk* \
        /usr/local/opt/openjdk*; do
        if [ -x "$home/bin/java" ] && java_is_new_enough "$home/bin/java"; then
            JAVA_FOUND=$home
            return 0
        fi
    done
    return 1
}

# ---- what is missing --------------------------------------------------------------------------------------

MISSING=    # words for the sentence
PACKAGES=   # the distribution's names

lack() { MISSING="${MISSING:+$MISSING, }$1"; shift; PACKAGES="${PACKAGES:+$PACKAGES }$*"; }

manager() {
    for tool in apt-get dnf apk brew; do
        if have "$tool"; then printf '%s' "$tool"; return; fi
    done
}

first_offered() { # the first of these packages that the distribution has, else the last
    for package in "$@"; do
        if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then break; fi
    done
    printf '%s' "$package"
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# Debian keeps PostgreSQL's programs off the path.
has_postgres() {
    for program in "$(command -v initdb)" /usr/lib/postgresql/*/bin/initdb; do
        if [ -x "$program" ] && [ -x "$(dirname "$program")/postgres" ]; then return 0; fi
    done
    return 1
}

list_missing() { # $1: java, spin, servers or nothing
    MISSING=; PACKAGES=
    if [ "${1:-}" = spin ]; then
        if have spin; then return; fi
        case $MANAGER in
            apt-get | brew) ;;
            *) MANAGER= ;; # no package that we know of
        esac
        lack "the model checker SPIN" spin
        return
    fi
    if [ "${1:-}" = servers ]; then
        case $MANAGER in
            dnf) postgres=postgresql-server redis=redis ;;
            apt-get) postgres=postgresql redis=redis-server ;;
            *) postgres=postgresql redis=redis ;;
        esac
        has_postgres || lack "a PostgreSQL server" "$postgres"
        have redis-server || lack "a Redis server" "$redis"
        return
    fi
    if py=$(find_python); then
        if ! has_headers "$py"; then
            case $MANAGER in
                apt-get) lack "the headers of Python $(version_of "$py")" "python$(version_of "$py")-dev" ;;
                dnf)
                    found=$(basename "$(readlink -f "$(command -v "$py")")")
                    lack "the headers of Python" "$found-devel"
                    ;;
                *) lack "the headers of Python" python3-dev ;;
            esac
        fi
        has_venv "$py" || lack "Python's venv module" "python$(version_of "$py")-venv"
    else
        case $MANAGER in
            apt-get) lack "Python 3.11 or newer" "python3 python3-dev python3-venv" ;;
            dnf) lack "Python 3.11 or newer" "python3.12 python3.12-devel" ;;
            apk) lack "Python 3.11 or newer" "python3 python3-dev" ;;
            brew) lack "Python 3.11 or newer" "python@3.13" ;;
        esac
    fi
    if ! has_compiler "${py:-python3}"; then
        case $MANAGER in
            dnf) lack "a C++17 compiler" gcc-c++ ;;
            brew)
                stop "ordstream needs a C++17 compiler: type \`xcode-select --install\` and run the" \
                    "command again."
                ;;
            *) lack "a C++17 compiler" g++ ;;
        esac
    fi
    if [ "${1:-}" = java ] && ! find_java; then
        case $MANAGER in
            apt-get)
                lack "a Java 17+ runtime" "$(first_offered openjdk-17-jre-headless openjdk-21-jre-headless \
                    openjdk-25-jre-headless default-jre-headless)"
                ;;
            dnf) lack "a Java 17+ runtime" java-21-openjdk-headless ;;
            apk) lack "a Java 17+ runtime" openjdk17-jre-headless ;;
            brew) lack "a Java 17+ runtime" openjdk@17 ;;
        esac
    fi
}

# The command of this manager; a person types it as it stands, with sudo where that is usual.
install_command() {
    case $MANAGER in
        apt-get) printf 'apt-get install -y --no-install-recommends %s' "$PACKAGES" ;;
        dnf) printf 'dnf install -y %s' "$PACKAGES" ;;
        apk) printf 'apk add %s' "$PACKAGES" ;;
        brew) printf 'brew install %s' "$PACKAGES" ;;
    esac
}

complete() { # $1: java, spin, servers or nothing. Install what is missing, or stop with the sentence.
    MANAGER=$(manager)
    list_missing "${1:-}"
    [ -n "$MISSING" ] || return 0
    [ -n "$MANAGER" ] || stop "ordstream needs $MISSING: install it with your system's package manager and" \
        "run the command again."
    as=
    typed=
    if [ "$MANAGER" != brew ] && [ "$(id -u)" != 0 ]; then
        typed='sudo '
        if have sudo && sudo -n true 2>/dev/null; then as='sudo -n'; else as=no; fi
    fi
    if [ "$as" != no ]; then
        if [ "$MANAGER" = apt-get ]; then
            $as apt-get update -qq >/dev/null 2>&1
            list_missing "${1:-}" # the names may be known only now
        fi
        printf 'installing %s: %s\n' "$MISSING" "$(install_command)" >&2
        # shellcheck disable=SC2046
        DEBIAN_FRONTEND=noninteractive $as $(install_command) </dev/null >&2 || true
        asked=$(install_command)
        list_missing "${1:-}"
        [ -n "$MISSING" ] || return 0
        stop "ordstream needs $MISSING, and \`$asked\` did not bring it: install it by hand and run the" \
            "command again."
    fi
    stop "ordstream needs $MISSING: type \`$typed$(install_command)\` and run the command again."
}

# ---- doors ------------------------------------------------------------------------------------------------

case ${1:-} in
    java-home)
        find_java && printf '%s' "$JAVA_FOUND"
        exit 0
        ;;
    spin)
        (complete spin) || printf 'without it the tests in tests/models are skipped\n' >&2
        exit 0
        ;;
    servers)
        (complete servers) || printf 'without them the tests that start one are skipped\n' >&2
        exit 0
        ;;
    "" | java) ;;
    *) stop "usage: tools/bootstrap.sh [java | spin | servers | java-home]" ;;
esac

complete "${1:-}"
if ! is_new_enough "$VENV/bin/python"; then
    py=$(find_python)
    printf 'making %s with %s\n' "$VENV" "$("$py" --version)" >&2
    "$py" -m venv --clear "$VENV" || stop "\`$py -m venv $VENV\` failed."
fi
