package main

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// scopes are the scopes that clients may ask for.
var scopes = []string{"openid", "profile", "email", "groups", "offline_access"}

// claimsOf names the claims that a scope stands for.
var claimsOf = map[string][]string{
	"email":   {"email", "email_verified"},
	"profile": {"name", "preferred_username"},
	"groups":  {"groups"},
}

// store keeps all in memory: the settings that tests change, keys, requests and tokens. It implements op.Storage.
type store struct {
	lock     sync.Mutex
	settings settings
	// keys are published. The first one signs.
	keys     []*signingKey
	requests map[string]*authRequest
	// codes maps a code to the id of its request.
	codes   map[string]string
	refresh map[string]*refreshToken
	devices map[string]*device
}

func newStore(settings settings) (*store, error) {
	key, err := newSigningKey(settings.Algorithm)
	return &store{
		settings: settings,
		keys:     []*signingKey{key},
		requests: map[string]*authRequest{},
		codes:    map[string]string{},
		refresh:  map[string]*refreshToken{},
		devices:  map[string]*device{},
	}, err
}

func (s *store) Health(context.Context) error { return nil }

// Clients and users.

func (s *store) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, known := range s.settings.Clients {
		if known.ID == id {
			return &client{known, seconds(s.settings.Lifetimes.IDToken)}, nil
		}
	}
	return nil, errors.New("the client is unknown")
}

func (s *store) AuthorizeClientIDSecret(context.Context, string, string) error {
	return errors.New("all clients are public")
}

// user returns the first user that passes a test.
func (s *store) user(is func(*user) bool) (*user, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for index := range s.settings.Users {
		if is(&s.settings.Users[index]) {
			return &s.settings.Users[index], nil
		}
	}
	return nil, errors.New("user or password is wrong")
}

func (s *store) userBySubject(subject string) (*user, error) {
	return s.user(func(user *user) bool { return user.Subject == subject })
}

// SetUserinfoFromRequest sets the claims of an ID token.
func (s *store) SetUserinfoFromRequest(
	_ context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string,
) error {
	return s.setClaims(info, request.GetSubject(), scopes)
}

// SetUserinfoFromToken sets the claims of an answer of the user info endpoint, which has those of all scopes.
func (s *store) SetUserinfoFromToken(_ context.Context, info *oidc.UserInfo, _, subject, _ string) error {
	return s.setClaims(info, subject, scopes)
}

func (s *store) setClaims(info *oidc.UserInfo, subject string, scopes []string) error {
	user, err := s.userBySubject(subject)
	if err != nil {
		return err
	}
	info.Subject = subject
	for _, scope := range scopes {
		for _, name := range claimsOf[scope] {
			if value, is := user.Claims[name]; is {
				info.AppendClaims(name, value)
			}
		}
	}
	return nil
}

// SetUserinfoFromScopes does nothing: SetUserinfoFromRequest sets the claims.
func (s *store) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

func (s *store) SetIntrospectionFromToken(context.Context, *oidc.IntrospectionResponse, string, string, string) error {
	return errors.New("introspection is not supported")
}

// GetPrivateClaimsFromScopes returns the claims of an access token, which has none of the person's.
func (s *store) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}

func (s *store) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errors.New("clients have no keys")
}

func (s *store) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errors.New("clients have no keys")
}

// Keys.

// rotate makes a new key that signs from now on, and goes on publishing the former keys if they are to be kept.
func (s *store) rotate(keep bool) error {
	key, err := newSigningKey(s.settings.Algorithm)
	if err != nil {
		return err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if !keep {
		s.keys = nil
	}
	s.keys = slices.Insert(s.keys, 0, key)
	return nil
}

func (s *store) SigningKey(context.Context) (op.SigningKey, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.keys[0], nil
}

func (s *store) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.SignatureAlgorithm(s.settings.Algorithm)}, nil
}

func (s *store) KeySet(context.Context) ([]op.Key, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	keys := make([]op.Key, len(s.keys))
	for index, key := range s.keys {
		keys[index] = publicKey{key}
	}
	return keys, nil
}

// Requests of the code flow.

func (s *store) CreateAuthRequest(_ context.Context, request *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if request.CodeChallenge == "" {
		return nil, oidc.ErrInvalidRequest().WithDescription("a code_challenge is required")
	}
	made := &authRequest{
		identity: identity{clientID: request.ClientID, scopes: request.Scopes},
		id:       rand.Text(),
		request:  request,
	}
	s.requests[made.id] = made
	return made, nil
}

func (s *store) authRequest(id string) (*authRequest, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	request, is := s.requests[id]
	if !is {
		return nil, errors.New("the request is unknown")
	}
	// A copy: the request changes while its person signs in.
	seen := *request
	return &seen, nil
}

// signIn records who signed in, and allow that this person consented.
func (s *store) signIn(id, subject string) {
	s.change(id, func(r *authRequest) { r.subject = subject })
}
func (s *store) allow(id string) {
	s.change(id, func(r *authRequest) { r.done, r.authTime = r.subject != "", time.Now() })
}

func (s *store) change(id string, change func(*authRequest)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if request, is := s.requests[id]; is {
		change(request)
	}
}

func (s *store) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	return s.authRequest(id)
}

// AuthRequestByCode takes a code, which is good for one use.
func (s *store) AuthRequestByCode(_ context.Context, code string) (op.AuthRequest, error) {
	s.lock.Lock()
	id, is := s.codes[code]
	delete(s.codes, code)
	s.lock.Unlock()
	if !is {
		return nil, errors.New("the code is unknown or was used")
	}
	return s.authRequest(id)
}

func (s *store) SaveAuthCode(_ context.Context, id, code string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.codes[code] = id
	return nil
}

func (s *store) DeleteAuthRequest(_ context.Context, id string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.requests, id)
	return nil
}
