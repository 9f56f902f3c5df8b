package main

import (
	"crypto/rand"
	"net/http"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	loginPath   = "/login"
	consentPath = "/consent"
	devicePath  = "/device"
	// devicePoll is how long a device waits between two questions.
	devicePoll = time.Second
)

// newIssuer returns the handler of all that clients and people ask for.
func newIssuer(store *store) (http.Handler, error) {
	config := &op.Config{
		CodeMethodS256:        true,
		GrantTypeRefreshToken: true,
		SupportedScopes:       scopes,
		DeviceAuthorization: op.DeviceAuthorizationConfig{
			Lifetime:     seconds(store.settings.Lifetimes.DeviceCode),
			PollInterval: devicePoll,
			UserFormPath: devicePath,
			UserCode:     op.UserCodeBase20,
		},
	}
	if _, err := rand.Read(config.CryptoKey[:]); err != nil {
		return nil, err
	}
	provider, err := op.NewProvider(config, store, op.StaticIssuer(store.settings.Issuer))
	if err != nil {
		return nil, err
	}
	pages := &pages{store, provider}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+loginPath, pages.showLogin)
	mux.HandleFunc("POST "+loginPath, pages.login)
	mux.HandleFunc("POST "+consentPath, pages.consent)
	mux.HandleFunc("GET "+devicePath, pages.showDevice)
	mux.HandleFunc("POST "+devicePath, pages.device)
	mux.Handle("/", provider)
	return mux, nil
}
