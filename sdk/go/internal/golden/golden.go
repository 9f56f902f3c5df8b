// Package golden reads the golden files of manifests, which all SDKs share.
package golden

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// File is a golden file: an input, and what comes of it.
type File struct {
	Name  string `json:"name"`
	Input Input  `json:"input"`
	// Canonical is the text of the objects; empty if they are refused.
	Canonical string `json:"canonical"`
	Refusal   struct {
		Reason string `json:"reason"`
	} `json:"refusal"`
}

// Input is an answer as proto JSON, and what the caller chooses.
type Input struct {
	Response json.RawMessage `json:"response"`
	Options  struct {
		Name           string    `json:"name"`
		Bundle         string    `json:"bundle"`
		Template       string    `json:"template"`
		Namespace      string    `json:"namespace"`
		ServiceAccount string    `json:"serviceAccount"`
		WithNamespace  bool      `json:"withNamespace"`
		Accept         *[]string `json:"accept"`
		Reject         []string  `json:"reject"`
	} `json:"options"`
}

// Manifests makes the objects of an input.
func (i Input) Manifests() ([]bindery.Manifest, error) {
	response := new(pb.BindingResourceResponse)
	if err := protojson.Unmarshal(i.Response, response); err != nil {
		return nil, err
	}
	options := bindery.ManifestOptions{
		Name:                    i.Options.Name,
		Bundle:                  i.Options.Bundle,
		Template:                i.Options.Template,
		KonnectorNamespace:      i.Options.Namespace,
		KonnectorServiceAccount: i.Options.ServiceAccount,
		WithNamespace:           i.Options.WithNamespace,
		Reject:                  resources(i.Options.Reject),
	}
	if i.Options.Accept != nil {
		options.Accept = resources(*i.Options.Accept)
	}
	return bindery.Manifests(response, options)
}

// Text is the canonical text of objects.
func Text(manifests []bindery.Manifest) (string, error) {
	var text bytes.Buffer
	err := bindery.WriteManifests(&text, manifests)
	return text.String(), err
}

// resources reads names such as certificates.example.com: up to the first dot the plural, then the group.
func resources(names []string) []bindery.GroupResource {
	resources := []bindery.GroupResource{}
	for _, name := range names {
		plural, group, _ := strings.Cut(name, ".")
		resources = append(resources, bindery.GroupResource{Group: group, Resource: plural})
	}
	return resources
}
