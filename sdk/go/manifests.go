package bindery

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

const (
	// manager is the value of the label app.kubernetes.io/managed-by on all objects but the Namespace. The command line takes objects
	// with this label for its own.
	manager = "kubectl-bind"

	labelManagedBy = "app.kubernetes.io/managed-by"
	labelComponent = "kube-bind.io/component"

	annotationTemplate       = "kube-bind.io/template"
	annotationResources      = "kube-bind.io/resources"
	annotationAcceptedClaims = "kube-bind.io/accepted-claims"

	apiVersion     = "kube-bind.io/v1alpha2"
	rbacGroup      = "rbac.authorization.k8s.io"
	kubeconfigName = "kubeconfig"
)

// ManifestOptions is what a caller chooses about the objects of a bind. The zero value is a binding that accepts all claims but
// one on every Secret.
type ManifestOptions struct {
	// Name of the binding that was asked for. An answer for another one is refused; empty takes the name in the answer.
	Name string
	// Template that was bound, for an annotation.
	Template string
	// Bundle makes a bundle of this name in place of a binding.
	Bundle string
	// KonnectorNamespace is the namespace of the konnector, which is that of the Secret; kube-bind if it is empty.
	KonnectorNamespace string
	// KonnectorServiceAccount is the ServiceAccount of the konnector; konnector if it is empty.
	KonnectorServiceAccount string
	// WithNamespace makes the konnector's namespace one of the objects.
	WithNamespace bool
	// Accept names the claimed resources that are accepted, and all others are rejected; nil accepts all that are not rejected. A
	// claim on every Secret is accepted only by name.
	Accept []GroupResource
	// Reject names the resources that are never accepted, also if Accept names them.
	Reject []GroupResource
}

// GroupResource names a resource by its API group and plural.
type GroupResource struct {
	// Group is the API group; empty for the core group.
	Group string
	// Resource is the plural name in lower case, such as secrets.
	Resource string
}

// String returns the resource as kubectl names it, such as cowboys.wildwest.dev.
func (r GroupResource) String() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

func (r GroupResource) compare(other GroupResource) int {
	if byGroup := strings.Compare(r.Group, other.Group); byGroup != 0 {
		return byGroup
	}
	return strings.Compare(r.Resource, other.Resource)
}

func (r GroupResource) document() map[string]any {
	document := map[string]any{"resource": r.Resource}
	setText(document, "group", r.Group)
	return document
}

// Manifest is one object that the consumer applies.
type Manifest struct {
	// APIVersion and Kind say what the object is.
	APIVersion, Kind string
	// Namespace of the object; empty if it is cluster-scoped.
	Namespace string
	// Name of the object.
	Name string

	document func() map[string]any
}

// Object returns the object as the content of an unstructured.Unstructured. The caller may change it. That of the Secret holds
// tokens.
func (m Manifest) Object() map[string]any { return m.document() }

// JSON returns the object in the canonical form, in which all SDKs write the same bytes: one line of JSON, keys in the order of
// their UTF-8 bytes, no insignificant space. That of the Secret holds tokens.
func (m Manifest) JSON() []byte { return appendCanonical(nil, m.document()) }

// MarshalJSON returns the object in the canonical form.
func (m Manifest) MarshalJSON() ([]byte, error) { return m.JSON(), nil }

// String names the object, such as "Secret kube-bind/kubeconfig-cowboys". It shows no token.
func (m Manifest) String() string {
	if m.Namespace == "" {
		return m.Kind + " " + m.Name
	}
	return fmt.Sprintf("%s %s/%s", m.Kind, m.Namespace, m.Name)
}

// GoString names the object. It shows no token.
func (m Manifest) GoString() string { return fmt.Sprintf("bindery.Manifest(%s)", m) }

// LogValue is what log/slog logs: the name of the object.
func (m Manifest) LogValue() slog.Value { return slog.StringValue(m.String()) }

// MarshalLog is what logr logs: the name of the object.
func (m Manifest) MarshalLog() any { return m.String() }

// WriteManifests writes the objects for kubectl apply -f: in the canonical form, one line each.
func WriteManifests(to io.Writer, manifests []Manifest) error {
	for _, manifest := range manifests {
		if _, err := to.Write(append(manifest.JSON(), '\n')); err != nil {
			return fmt.Errorf("cannot write %s: %w", manifest, err)
		}
	}
	return nil
}

// Manifests judges the answer to a bind, and makes the objects that the consumer applies, in this order: the Namespace (if it is
// asked for), ClusterRole, ClusterRoleBinding, Secret and APIServiceBinding, or for a bundle the Secret and
// APIServiceBindingBundle. The owner comes last, because the konnector acts on it. Nothing of the answer but names, claims and the
// kubeconfig enters them. An error is of type [*Refusal].
func Manifests(response *pb.BindingResourceResponse, options ManifestOptions) ([]Manifest, error) {
	name := options.Name
	if name == "" {
		name = response.GetBindingName()
	}
	install := install{
		name:           name,
		bundle:         options.Bundle,
		template:       options.Template,
		namespace:      orDefault(options.KonnectorNamespace, "kube-bind"),
		serviceAccount: orDefault(options.KonnectorServiceAccount, "konnector"),
	}
	if !isLabel(name) {
		return nil, refuseName(name)
	}
	if options.Bundle != "" && !isLabel(options.Bundle) {
		return nil, refuseName(options.Bundle)
	}
	var err *Refusal
	if install.offer, err = judge(response, name); err != nil {
		return nil, err
	}
	if install.decision, err = decide(install.offer.claims, options); err != nil {
		return nil, err
	}
	install.kubeconfig = response.GetKubeconfig().GetKubeconfig()
	if len(install.kubeconfig) == 0 {
		return nil, &Refusal{Reason: "NoKubeconfig", message: "it has no kubeconfig"}
	}
	var manifests []Manifest
	if options.WithNamespace {
		manifests = append(manifests, install.makeNamespace())
	}
	if options.Bundle != "" {
		secret := providerSecret("bundle-" + options.Bundle)
		return append(manifests, install.makeSecret(secret), install.makeBundle(secret)), nil
	}
	secret := providerSecret(name)
	return append(manifests, install.makeRole(), install.makeGrant(), install.makeSecret(secret), install.makeBinding(secret)), nil
}

// install is a binding or bundle to install.
type install struct {
	name, bundle, template    string
	namespace, serviceAccount string
	offer                     offer
	decision                  decision
	kubeconfig                []byte
}

func (i install) makeNamespace() Manifest {
	return manifest("v1", "Namespace", "", i.namespace, func() map[string]any {
		return map[string]any{"metadata": map[string]any{"name": i.namespace}}
	})
}

func (i install) makeSecret(name string) Manifest {
	return manifest("v1", "Secret", i.namespace, name, func() map[string]any {
		metadata := managed(name, "provider-kubeconfig")
		metadata["namespace"] = i.namespace
		return map[string]any{
			"metadata": metadata,
			"data":     map[string]any{kubeconfigName: base64.StdEncoding.EncodeToString(i.kubeconfig)},
		}
	})
}

func (i install) makeRole() Manifest {
	name := konnectorRole(i.name)
	return manifest(rbacGroup+"/v1", "ClusterRole", "", name, func() map[string]any {
		rules := consumerRules(i.offer.resources, i.decision.accepted)
		// The konnector deletes its own rights as the last step of an unbind.
		own := rule(rbacGroup, []string{"clusterroles", "clusterrolebindings"}, []string{"delete"})
		own["resourceNames"] = []any{name}
		return map[string]any{"metadata": managed(name, "binding-role"), "rules": append(rules, own)}
	})
}

func (i install) makeGrant() Manifest {
	name := konnectorRole(i.name)
	return manifest(rbacGroup+"/v1", "ClusterRoleBinding", "", name, func() map[string]any {
		return map[string]any{
			"metadata": managed(name, "binding-role"),
			"roleRef":  map[string]any{"apiGroup": rbacGroup, "kind": "ClusterRole", "name": name},
			"subjects": []any{
				map[string]any{"kind": "ServiceAccount", "name": i.serviceAccount, "namespace": i.namespace},
			},
		}
	})
}

func (i install) makeBinding(secret string) Manifest {
	return manifest(apiVersion, "APIServiceBinding", "", i.name, func() map[string]any {
		spec := map[string]any{"kubeconfigSecretRef": i.secretRef(secret)}
		setList(spec, "rejectedPermissionClaims", documents(i.decision.rejected, GroupResource.document))
		// What the user has seen and not rejected; what the provider claims later on needs another yes.
		accepted := documents(i.acceptedClaims(), claim.document)
		annotations := map[string]any{
			annotationResources:      strings.Join(texts(i.offer.resources), ","),
			annotationAcceptedClaims: string(appendCanonical(nil, accepted)),
		}
		setText(annotations, annotationTemplate, i.template)
		metadata := managed(i.name, "")
		metadata["annotations"] = annotations
		return map[string]any{"metadata": metadata, "spec": spec}
	})
}

func (i install) makeBundle(secret string) Manifest {
	return manifest(apiVersion, "APIServiceBindingBundle", "", i.bundle, func() map[string]any {
		spec := map[string]any{"kubeconfigSecretRef": i.secretRef(secret)}
		setList(spec, "acceptedClaims", documents(i.acceptedClaims(), claim.document))
		return map[string]any{"metadata": managed(i.bundle, ""), "spec": spec}
	})
}

func (i install) secretRef(name string) map[string]any {
	return map[string]any{"name": name, "key": kubeconfigName, "namespace": i.namespace}
}

func (i install) acceptedClaims() []claim {
	var accepted []claim
	for _, claim := range i.offer.claims {
		if slices.Contains(i.decision.accepted, claim.resource) {
			accepted = append(accepted, claim)
		}
	}
	return accepted
}

func manifest(version, kind, namespace, name string, content func() map[string]any) Manifest {
	document := func() map[string]any {
		document := content()
		document["apiVersion"], document["kind"] = version, kind
		return document
	}
	return Manifest{APIVersion: version, Kind: kind, Namespace: namespace, Name: name, document: document}
}

// managed is the metadata of an object that kubectl-bind may take for its own.
func managed(name, component string) map[string]any {
	labels := map[string]any{labelManagedBy: manager}
	setText(labels, labelComponent, component)
	return map[string]any{"name": name, "labels": labels}
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// setText sets a field unless it is empty.
func setText(document map[string]any, key, text string) {
	if text != "" {
		document[key] = text
	}
}

// setList sets a field unless it is empty.
func setList(document map[string]any, key string, list []any) {
	if len(list) > 0 {
		document[key] = list
	}
}

func documents[T any](items []T, document func(T) map[string]any) []any {
	list := make([]any, 0, len(items))
	for _, item := range items {
		list = append(list, document(item))
	}
	return list
}

func texts[T fmt.Stringer](items []T) []string {
	list := make([]string, 0, len(items))
	for _, item := range items {
		list = append(list, item.String())
	}
	return list
}
