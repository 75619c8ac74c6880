#!/usr/bin/env bash
# Runs kvproof's stateful and live tests against the vLLM that PYTHON imports.
# README.md lists the exit codes.
#
#   PYTHON                 the interpreter that has vLLM              (python3)
#   KVPROOF_PROFILE        dev, ci or nightly: number of examples     (ci)
#   KVPROOF_JUNIT          the report, a new file                     (kvproof-junit.xml)
#   KVPROOF_PYTEST_ARGS    more arguments of pytest, such as -k mamba (none)
#   KVPROOF_REQUIRE_LIVE   empty if the model alone is enough         (1)
#
# The report and the folder kvproof-traces (traces of failing runs) are in kvproof's folder.
set -uo pipefail

python=${PYTHON:-python3}
report=${KVPROOF_JUNIT:-kvproof-junit.xml}
export KVPROOF_PROFILE=${KVPROOF_PROFILE:-ci}
export KVPROOF_REQUIRE_LIVE=${KVPROOF_REQUIRE_LIVE-1}

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
case $KVPROOF_PROFILE in
    dev | ci | nightly) ;;
    *)
        echo "KVPROOF_PROFILE is '$KVPROOF_PROFILE', which is no profile. Use dev, ci or nightly." >&2
        exit 2
        ;;
esac
if [ -e "$report" ]; then
    echo "The file $report exists and is not overwritten. Use KVPROOF_JUNIT=another-file.xml." >&2
    exit 2
fi
if ! "$python" -c 'import kvproof.cli.main' >/dev/null 2>&1; then
    echo "$python cannot import kvproof. Use $python -m pip install $PWD first." >&2
    exit 2
fi

# shellcheck disable=SC2086 # the arguments are separate words
"$python" -m pytest -q -c pyproject.toml -m "stateful or live" -p kvproof.cli.keep_traces \
    --junitxml="$report" ${KVPROOF_PYTEST_ARGS:-}
tests=$?
# Without a report, pytest has not begun, and has printed why.
[ -e "$report" ] || exit "$tests"
"$python" -m kvproof.cli.live_summary "$report"
summary=$?
exit $((tests ? tests : summary))
