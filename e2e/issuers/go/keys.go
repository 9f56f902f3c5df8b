package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// signingKey is a private key. It signs tokens, and is published as a publicKey.
type signingKey struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

func newSigningKey(algorithm string) (*signingKey, error) {
	key := &signingKey{id: rand.Text(), algorithm: jose.SignatureAlgorithm(algorithm)}
	var err error
	switch key.algorithm {
	case jose.RS256:
		key.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		key.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		err = fmt.Errorf("algorithm %q is unknown", algorithm)
	}
	return key, err
}

func (k *signingKey) ID() string                                  { return k.id }
func (k *signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return k.algorithm }
func (k *signingKey) Key() any                                    { return k.private }

// publicKey is what clients see of a signingKey.
type publicKey struct{ *signingKey }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return k.algorithm }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return k.private.Public() }
