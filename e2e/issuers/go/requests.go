package main

import (
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
)

// identity is what every kind of request for tokens says about its person and its client.
type identity struct {
	subject  string
	clientID string
	scopes   []string
	authTime time.Time
}

func (i *identity) GetSubject() string     { return i.subject }
func (i *identity) GetClientID() string    { return i.clientID }
func (i *identity) GetAudience() []string  { return []string{i.clientID} }
func (i *identity) GetScopes() []string    { return i.scopes }
func (i *identity) GetAuthTime() time.Time { return i.authTime }
func (i *identity) GetAMR() []string       { return []string{"pwd"} }

// authRequest is a request of the code flow. It is done when the person has consented.
type authRequest struct {
	identity
	id      string
	request *oidc.AuthRequest
	done    bool
}

func (a *authRequest) GetID() string                      { return a.id }
func (a *authRequest) GetACR() string                     { return "" }
func (a *authRequest) GetNonce() string                   { return a.request.Nonce }
func (a *authRequest) GetRedirectURI() string             { return a.request.RedirectURI }
func (a *authRequest) GetResponseType() oidc.ResponseType { return a.request.ResponseType }
func (a *authRequest) GetResponseMode() oidc.ResponseMode { return a.request.ResponseMode }
func (a *authRequest) GetState() string                   { return a.request.State }
func (a *authRequest) Done() bool                         { return a.done }
func (a *authRequest) GetCodeChallenge() *oidc.CodeChallenge {
	if a.request.CodeChallenge == "" {
		return nil
	}
	return &oidc.CodeChallenge{Challenge: a.request.CodeChallenge, Method: a.request.CodeChallengeMethod}
}

// refreshToken is a refresh token that was handed out. All that descend from one login have the same grant.
type refreshToken struct {
	identity
	grant   string
	expires time.Time
	used    bool
}

// refreshRequest is one use of a refreshToken.
type refreshRequest struct {
	identity
	grant string
}

func (r *refreshRequest) SetCurrentScopes(scopes []string) { r.scopes = scopes }
