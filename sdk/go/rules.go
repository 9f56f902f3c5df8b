package bindery

import "slices"

// objectVerbs are the verbs that a konnector needs on exported and claimed objects.
func objectVerbs() []string {
	return []string{"get", "list", "watch", "create", "update", "patch", "delete"}
}

// statusVerbs are the verbs that a konnector needs on the status of exported objects.
func statusVerbs() []string { return []string{"get", "patch", "update"} }

// consumerRules are the rules that a konnector needs on its own cluster for an export with these resources and claims, which are
// sorted.
func consumerRules(resources, claims []GroupResource) []any {
	var rules []any
	for start := 0; start < len(resources); {
		group, end := resources[start].Group, start
		var objects, statuses []string
		for ; end < len(resources) && resources[end].Group == group; end++ {
			objects = append(objects, resources[end].Resource)
			statuses = append(statuses, resources[end].Resource+"/status")
		}
		rules = append(rules, rule(group, objects, objectVerbs()), rule(group, statuses, statusVerbs()))
		start = end
	}
	// No role can say which objects of a resource are claimed, and a konnector may create, change and delete the copies of those
	// that the provider owns.
	for _, claim := range claims {
		rules = append(rules, rule(claim.Group, []string{claim.Resource}, objectVerbs()))
	}
	return rules
}

func rule(group string, resources, verbs []string) map[string]any {
	return map[string]any{"apiGroups": []any{group}, "resources": list(resources), "verbs": list(verbs)}
}

func list(texts []string) []any {
	items := make([]any, 0, len(texts))
	for _, text := range texts {
		items = append(items, text)
	}
	return items
}

// sortedSet sorts resources and drops those that occur twice.
func sortedSet(resources []GroupResource) []GroupResource {
	sorted := slices.SortedFunc(slices.Values(resources), GroupResource.compare)
	return slices.Compact(sorted)
}
