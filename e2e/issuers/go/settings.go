package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// settings is the content of the file that the program is started with.
type settings struct {
	Issuer    string           `json:"issuer"`
	Algorithm string           `json:"algorithm"`
	Clients   []clientSettings `json:"clients"`
	Users     []user           `json:"users"`
	Lifetimes lifetimes        `json:"lifetimes"`
}

// clientSettings is a public client.
type clientSettings struct {
	ID           string   `json:"id"`
	RedirectURIs []string `json:"redirect_uris"`
}

// user is a person who can sign in. The claims are those of all scopes.
type user struct {
	Name     string         `json:"name"`
	Password string         `json:"password"`
	Subject  string         `json:"subject"`
	Claims   map[string]any `json:"claims"`
}

// lifetimes are in seconds.
type lifetimes struct {
	IDToken      int `json:"id_token"`
	AccessToken  int `json:"access_token"`
	RefreshToken int `json:"refresh_token"`
	DeviceCode   int `json:"device_code"`
}

func readSettings(path string) (settings, error) {
	var read settings
	content, err := os.ReadFile(path)
	if err != nil {
		return read, err
	}
	if err := json.Unmarshal(content, &read); err != nil {
		return read, fmt.Errorf("%s: %w", path, err)
	}
	return read, nil
}

func seconds(number int) time.Duration {
	return time.Duration(number) * time.Second
}
