package bindery

import (
	"slices"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// claim is what a provider asks to see and to write on the consumer besides its own API.
type claim struct {
	resource GroupResource
	selector *pb.Selector
}

// decision is which claims of an offer a bind accepts and rejects. Both lists are sorted.
type decision struct {
	accepted, rejected []GroupResource
}

// decide decides which claims are accepted and which are rejected.
func decide(claims []claim, options ManifestOptions) (decision, *Refusal) {
	var claimed []GroupResource
	for _, claim := range claims {
		claimed = append(claimed, claim.resource)
	}
	for _, resource := range sortedSet(options.Accept) {
		if !slices.Contains(claimed, resource) {
			return decision{}, refuseUnclaimed(resource)
		}
	}
	for _, resource := range sortedSet(options.Reject) {
		// Resources of the core group may be rejected in advance: "never Secrets" holds for templates that claim none today.
		if !slices.Contains(claimed, resource) && !isClaimableCore(resource) {
			return decision{}, refuseUnclaimed(resource)
		}
	}
	decided := decision{rejected: slices.Clone(options.Reject)}
	for _, claim := range claims {
		isAccepted := options.Accept == nil || slices.Contains(options.Accept, claim.resource)
		if !isAccepted || slices.Contains(options.Reject, claim.resource) {
			decided.rejected = append(decided.rejected, claim.resource)
			continue
		}
		if options.Accept == nil && claim.isEverySecret() {
			return decision{}, &Refusal{
				Reason:  "EverySecret",
				message: "it claims EVERY Secret of the cluster; accept or reject the claim on secrets by name",
			}
		}
		decided.accepted = append(decided.accepted, claim.resource)
	}
	decided.accepted, decided.rejected = sortedSet(decided.accepted), sortedSet(decided.rejected)
	return decided, nil
}

// isClaimableCore tells whether a resource is one of the core group that can be claimed.
func isClaimableCore(resource GroupResource) bool {
	return resource.Group == "" && slices.Contains([]string{"configmaps", "secrets", "serviceaccounts"}, resource.Resource)
}

// isEverySecret tells whether the claim is on all Secrets: a label selector without requirements selects all objects.
func (c claim) isEverySecret() bool {
	labels := c.selector.GetLabelSelector()
	return c.resource == GroupResource{Resource: "secrets"} && labels != nil &&
		len(labels.GetMatchLabels()) == 0 && len(labels.GetMatchExpressions()) == 0
}

// document is the claim as it stands in bindings and bundles.
func (c claim) document() map[string]any {
	document := c.resource.document()
	selector := map[string]any{}
	if labels := c.selector.GetLabelSelector(); labels != nil {
		selector["labelSelector"] = labelDocument(labels)
	}
	setList(selector, "namedResources", documents(c.selector.GetNamedResources(), func(named *pb.NamedResource) map[string]any {
		document := map[string]any{"name": named.GetName()}
		setText(document, "namespace", named.GetNamespace())
		return document
	}))
	setList(selector, "references", documents(c.selector.GetReferences(), referenceDocument))
	document["selector"] = selector
	return document
}

func labelDocument(labels *pb.LabelSelector) map[string]any {
	document := map[string]any{}
	if len(labels.GetMatchLabels()) > 0 {
		equal := map[string]any{}
		for key, value := range labels.GetMatchLabels() {
			equal[key] = value
		}
		document["matchLabels"] = equal
	}
	setList(document, "matchExpressions", documents(labels.GetMatchExpressions(), func(r *pb.LabelSelectorRequirement) map[string]any {
		document := map[string]any{"key": r.GetKey(), "operator": r.GetOperator()}
		setList(document, "values", list(r.GetValues()))
		return document
	}))
	return document
}

func referenceDocument(reference *pb.SelectorReference) map[string]any {
	document := GroupResource{Group: reference.GetGroup(), Resource: reference.GetResource()}.document()
	setList(document, "versions", list(reference.GetVersions()))
	path := map[string]any{}
	setText(path, "name", reference.GetJsonPath().GetName())
	setText(path, "namespace", reference.GetJsonPath().GetNamespace())
	document["jsonPath"] = path
	return document
}
