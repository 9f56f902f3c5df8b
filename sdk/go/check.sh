#!/bin/sh
# Runs all checks and tests of the Go SDK and its examples. It needs Go and a C compiler (for the race detector). The first run downloads
# modules; later ones need no network. KUBEBUILDER_ASSETS, a folder with etcd and kube-apiserver, adds the tests of the example on a real
# API server.
set -eu
cd "$(dirname "$0")"

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
    echo "gofmt would change:" "$unformatted" >&2
    exit 1
fi
# The test of the README needs the modules of modproxy.
for module in tools/modproxy . examples/*/; do
    echo "== $module"
    (
        cd "$module"
        go mod verify
        go mod tidy -diff
        go vet ./...
        go test -race ./...
    )
done
