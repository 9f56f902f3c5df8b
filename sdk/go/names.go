package bindery

import "strings"

// labelLengthMax is the length limit of a DNS label (RFC 1123). Names made of one fit those of all objects.
const labelLengthMax = 63

// providerSecret is the Secret for a provider's kubeconfig of a binding.
func providerSecret(binding string) string { return "kubeconfig-" + binding }

// konnectorRole is the ClusterRole and the ClusterRoleBinding of a binding.
func konnectorRole(binding string) string { return "kube-bind-konnector-" + binding }

// isLabel tells whether a name is a DNS label (RFC 1123), as that of a binding must be.
func isLabel(name string) bool {
	if name == "" || len(name) > labelLengthMax || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for _, char := range []byte(name) {
		if (char < 'a' || char > 'z') && (char < '0' || char > '9') && char != '-' {
			return false
		}
	}
	return true
}

// isAPIName tells whether a text has only characters that stand in the names of groups and resources.
func isAPIName(text string) bool {
	for _, char := range []byte(text) {
		if (char < 'a' || char > 'z') && (char < '0' || char > '9') && char != '-' && char != '.' {
			return false
		}
	}
	return text != ""
}

// ownerOfGroup is the owner of an API group that no provider may offer, Kubernetes or kube-bind; empty for other groups.
func ownerOfGroup(group string) string {
	isUnder := func(domain string) bool { return group == domain || strings.HasSuffix(group, "."+domain) }
	switch {
	// Groups without a dot are Kubernetes' own, such as apps, and the core group is empty.
	case !strings.Contains(group, "."), isUnder("k8s.io"), isUnder("kubernetes.io"):
		return "Kubernetes itself"
	case isUnder("kube-bind.io"), isUnder("kubebind.io"):
		return "kube-bind itself"
	default:
		return ""
	}
}
