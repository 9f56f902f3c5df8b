package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func (s *store) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.newAccessToken()
}

func (s *store) newAccessToken() (string, time.Time, error) {
	return rand.Text(), time.Now().Add(seconds(s.settings.Lifetimes.AccessToken)), nil
}

// CreateAccessAndRefreshTokens hands out a refresh token of a new grant, or the successor of the current one.
func (s *store) CreateAccessAndRefreshTokens(
	_ context.Context, request op.TokenRequest, current string,
) (string, string, time.Time, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	next := &refreshToken{expires: time.Now().Add(seconds(s.settings.Lifetimes.RefreshToken))}
	switch request := request.(type) {
	case *authRequest:
		next.identity, next.grant = request.identity, rand.Text()
	case *op.DeviceAuthorizationState:
		next.identity = identity{request.Subject, request.ClientID, request.Scopes, request.AuthTime}
		next.grant = rand.Text()
	case *refreshRequest:
		// Asked again: another request may have used it meanwhile.
		used, is := s.refresh[current]
		if !is || used.used {
			s.endGrant(request.grant)
			return "", "", time.Time{}, oidc.ErrInvalidGrant()
		}
		used.used = true
		next.identity, next.grant = used.identity, used.grant
	default:
		return "", "", time.Time{}, errors.New("this kind of request gets no refresh token")
	}
	token := rand.Text()
	s.refresh[token] = next
	id, expires, err := s.newAccessToken()
	return id, token, expires, err
}

// TokenRequestByRefreshToken finds a refresh token. One that was used before ends its grant, because somebody has stolen it.
func (s *store) TokenRequestByRefreshToken(_ context.Context, token string) (op.RefreshTokenRequest, error) {
	s.lock.Lock()
	found, is := s.refresh[token]
	if is && found.used {
		s.endGrant(found.grant)
	}
	s.lock.Unlock()
	if !is || found.used || time.Now().After(found.expires) {
		return nil, op.ErrInvalidRefreshToken
	}
	if _, err := s.userBySubject(found.subject); err != nil {
		return nil, err
	}
	return &refreshRequest{identity: found.identity, grant: found.grant}, nil
}

func (s *store) endGrant(grant string) {
	for token, known := range s.refresh {
		if known.grant == grant {
			delete(s.refresh, token)
		}
	}
}

func (s *store) GetRefreshTokenInfo(_ context.Context, clientID, token string) (string, string, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	known, is := s.refresh[token]
	if !is || known.clientID != clientID {
		return "", "", op.ErrInvalidRefreshToken
	}
	return known.subject, token, nil
}

// RevokeToken ends the grant of a refresh token. Access tokens are not kept, so they last until they expire.
func (s *store) RevokeToken(_ context.Context, token, _, _ string) *oidc.Error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if known, is := s.refresh[token]; is {
		s.endGrant(known.grant)
	}
	return nil
}

func (s *store) TerminateSession(context.Context, string, string) error { return nil }
