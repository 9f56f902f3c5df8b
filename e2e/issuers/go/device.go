package main

import (
	"context"
	"errors"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

// device is a request of the device flow. A person finds it by the user code.
type device struct {
	userCode string
	state    op.DeviceAuthorizationState
}

func (s *store) StoreDeviceAuthorization(
	_ context.Context, clientID, deviceCode, userCode string, _ time.Time, scopes []string,
) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	expires := time.Now().Add(seconds(s.settings.Lifetimes.DeviceCode))
	state := op.DeviceAuthorizationState{ClientID: clientID, Scopes: scopes, Expires: expires}
	s.devices[deviceCode] = &device{userCode, state}
	return nil
}

// GetDeviceAuthorizatonState returns what became of a device code. A code that was granted is good for one use.
func (s *store) GetDeviceAuthorizatonState(
	_ context.Context, clientID, deviceCode string,
) (*op.DeviceAuthorizationState, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	found, is := s.devices[deviceCode]
	if !is || found.state.ClientID != clientID {
		return nil, errors.New("the device code is unknown or was used")
	}
	if found.state.Done {
		delete(s.devices, deviceCode)
	}
	state := found.state
	return &state, nil
}

// answerDevice records that a person allowed or denied what the device with a user code asks for.
func (s *store) answerDevice(userCode, subject string, allowed bool) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, device := range s.devices {
		if device.userCode == userCode && time.Now().Before(device.state.Expires) {
			device.state.Done, device.state.Denied = allowed, !allowed
			device.state.Subject, device.state.AuthTime, device.state.AMR = subject, time.Now(), []string{"pwd"}
			return nil
		}
	}
	return errors.New("the code is unknown or has expired")
}
