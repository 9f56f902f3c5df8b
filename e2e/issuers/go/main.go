// Command zitadel-issuer is an OpenID Connect issuer for tests, made of package op of github.com/zitadel/oidc.
//
// Its one argument is a JSON file: issuer (the URL that clients see), algorithm, clients, users and lifetimes. It listens without
// TLS on two loopback ports: one for clients, behind a proxy that terminates TLS, and one by which tests change users, lifetimes
// and keys. It prints both as one line of JSON, and ends by a signal.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: zitadel-issuer FILE")
	}
	settings, err := readSettings(os.Args[1])
	if err != nil {
		return err
	}
	store, err := newStore(settings)
	if err != nil {
		return err
	}
	issuer, err := newIssuer(store)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	issuerPort, err := serve(issuer, failed)
	if err != nil {
		return err
	}
	controlPort, err := serve(control(store), failed)
	if err != nil {
		return err
	}
	ports := map[string]int{"issuer": issuerPort, "control": controlPort}
	if err := json.NewEncoder(os.Stdout).Encode(ports); err != nil {
		return err
	}
	return <-failed
}

// serve serves on a loopback port of the system's choice, and returns the port.
func serve(handler http.Handler, failed chan<- error) (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	go func() { failed <- http.Serve(listener, handler) }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
