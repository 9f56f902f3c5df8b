package bindery

import (
	"fmt"
	"slices"
	"strings"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// Refusal is why no objects are made of an answer: the provider asks for more than it may have, or the options do not fit.
type Refusal struct {
	// Reason is for conditions and metrics, and never changes: Name, OtherBinding, NoContract, Empty, ForeignApi, Unclaimable,
	// Wildcard, Beyond, Verb, NotClaimed, EverySecret or NoKubeconfig.
	Reason string
	// Resource is the one that the refusal is about; nil if it is about none. For ForeignApi, Unclaimable, Beyond and NotClaimed.
	Resource *GroupResource

	message string
}

// Error says what is refused.
func (r *Refusal) Error() string { return "refused what the provider wants installed: " + r.message }

// offer is what a provider wants installed, after it was judged.
type offer struct {
	// contract is the contract namespace on the provider.
	contract string
	// resources of the export, sorted.
	resources []GroupResource
	// claims on other resources of the consumer, sorted, at most one for each resource.
	claims []claim
}

// judge judges the answer to a bind under this name. Refused is anything beyond the resources of the export and its claims.
func judge(answer *pb.BindingResourceResponse, binding string) (offer, *Refusal) {
	names := []string{answer.GetBindingName()}
	var judged offer
	for _, request := range answer.GetRequests() {
		names = append(names, request.GetName())
		for _, resource := range request.GetResources() {
			judged.resources = append(judged.resources, GroupResource{resource.GetGroup(), resource.GetResource()})
		}
		for _, message := range request.GetPermissionClaims() {
			resource := GroupResource{message.GetGroup(), message.GetResource()}
			judged.claims = append(judged.claims, claim{resource, message.GetSelector()})
		}
	}
	for _, name := range names {
		if name != binding {
			return offer{}, &Refusal{Reason: "OtherBinding", message: fmt.Sprintf("it answers for %q instead of %q", name, binding)}
		}
	}
	judged.contract = answer.GetProviderNamespace()
	judged.resources = sortedSet(judged.resources)
	slices.SortStableFunc(judged.claims, func(one, other claim) int { return one.resource.compare(other.resource) })
	if refusal := judged.judgeExport(); refusal != nil {
		return offer{}, refusal
	}
	for _, rule := range answer.GetConsumerRules() {
		if refusal := judged.judgeRule(rule); refusal != nil {
			return offer{}, refusal
		}
	}
	return judged, nil
}

func (o offer) judgeExport() *Refusal {
	if o.contract == "" {
		return &Refusal{Reason: "NoContract", message: "it names no contract namespace"}
	}
	if len(o.resources) == 0 {
		return &Refusal{Reason: "Empty", message: "it exports no API"}
	}
	for _, resource := range o.resources {
		if owner := foreignOwner(resource); owner != "" {
			return refuse("ForeignApi", resource, "it exports ", ", which belongs to "+owner)
		}
	}
	for number, claim := range o.claims {
		why := o.unclaimable(claim.resource)
		if why == "" && number > 0 && o.claims[number-1].resource == claim.resource {
			why = "it claims twice"
		}
		if why != "" {
			return refuse("Unclaimable", claim.resource, "it claims ", ", which "+why)
		}
	}
	return nil
}

// foreignOwner is the owner of a resource of Kubernetes or of kube-bind, which may not be exported because an export becomes a role
// on this cluster. It is empty for others.
func foreignOwner(resource GroupResource) string {
	if owner := ownerOfGroup(resource.Group); owner != "" {
		return owner
	}
	if !isAPIName(resource.Group) || !isAPIName(resource.Resource) {
		return "nobody: no API can have this name"
	}
	return ""
}

// unclaimable says why a resource may not be claimed; empty if it may be. Refused are those that could rule the cluster: of the core
// group all but three, and all other groups of Kubernetes. Claims on other groups are allowed by the provider's admin and decided by
// the user.
func (o offer) unclaimable(resource GroupResource) string {
	switch {
	case slices.Contains(o.resources, resource):
		return "it exports itself"
	case resource.Group == "":
		if isClaimableCore(resource) {
			return ""
		}
		return "nobody can claim: of the core group, only configmaps, secrets and serviceaccounts can be"
	case !isAPIName(resource.Group) || !isAPIName(resource.Resource):
		return "no API can be named"
	case ownerOfGroup(resource.Group) != "":
		return "belongs to Kubernetes or kube-bind, of which only configmaps, secrets and serviceaccounts can be claimed"
	default:
		return ""
	}
}

// judgeRule refuses a rule beyond the resources and the claims.
func (o offer) judgeRule(rule *pb.ConsumerRule) *Refusal {
	for _, part := range [][]string{rule.GetApiGroups(), rule.GetResources(), rule.GetVerbs(), rule.GetResourceNames()} {
		if slices.ContainsFunc(part, func(item string) bool { return strings.Contains(item, "*") }) {
			return &Refusal{Reason: "Wildcard", message: fmt.Sprintf("it asks for a right on \"*\" (%s)", shownRule(rule))}
		}
	}
	for _, group := range rule.GetApiGroups() {
		for _, name := range rule.GetResources() {
			base := GroupResource{group, strings.TrimSuffix(name, "/status")}
			resource := GroupResource{group, name}
			isClaimed := slices.ContainsFunc(o.claims, func(claim claim) bool { return claim.resource == resource })
			if !slices.Contains(o.resources, base) && !isClaimed {
				return refuse("Beyond", resource,
					"it asks for rights on ", ", which is neither exported nor claimed ("+shownRule(rule)+")")
			}
		}
	}
	for _, verb := range rule.GetVerbs() {
		if !slices.Contains(objectVerbs(), verb) {
			return &Refusal{Reason: "Verb", message: fmt.Sprintf("it asks for the right to %q (%s)", verb, shownRule(rule))}
		}
	}
	return nil
}

// refuse makes a refusal whose message names the resource between two texts.
func refuse(reason string, resource GroupResource, before, after string) *Refusal {
	return &Refusal{Reason: reason, Resource: &resource, message: before + printable(resource.String()) + after}
}

func refuseName(name string) *Refusal {
	return &Refusal{
		Reason: "Name",
		message: fmt.Sprintf(
			"%q cannot be the name of a binding: a name has 1 to 63 lower-case letters, digits and dashes", name),
	}
}

func refuseUnclaimed(resource GroupResource) *Refusal {
	return refuse("NotClaimed", resource, "", " is not claimed, so there is nothing to accept or reject")
}

func shownRule(rule *pb.ConsumerRule) string {
	return printable(fmt.Sprintf("%s of %s in %q", strings.Join(rule.GetVerbs(), ","), strings.Join(rule.GetResources(), ","),
		strings.Join(rule.GetApiGroups(), ",")))
}
