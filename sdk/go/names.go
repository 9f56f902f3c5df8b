package bindery

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// labelLengthMax is the length limit of a DNS label (RFC 1123).
	labelLengthMax = 63
	// nameLengthMax is the length limit of a DNS subdomain (RFC 1123).
	nameLengthMax = 253
)

// providerSecret is the Secret for a provider's kubeconfig of a binding.
func providerSecret(binding string) string { return fitName("kubeconfig-" + binding) }

// konnectorRole is the ClusterRole and the ClusterRoleBinding of a binding.
func konnectorRole(binding string) string { return fitName("kube-bind-konnector-" + binding) }

// fitName returns a name if it fits, or else its beginning and a hash of the whole name.
func fitName(name string) string {
	if len(name) <= nameLengthMax {
		return name
	}
	hash := shortHash(name)
	end := nameLengthMax - len(hash) - 1
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return strings.TrimRight(name[:end], "-.") + "-" + hash
}

// shortHash is the first eight bytes of the SHA-224 in base 36; each leading zero byte gives one leading zero.
func shortHash(text string) string {
	digest := sha256.Sum224([]byte(text))
	number := binary.BigEndian.Uint64(digest[:8])
	var zeros string
	for _, char := range digest[:8] {
		if char != 0 {
			break
		}
		zeros += "0"
	}
	if number == 0 {
		return zeros
	}
	return zeros + strconv.FormatUint(number, 36)
}

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
