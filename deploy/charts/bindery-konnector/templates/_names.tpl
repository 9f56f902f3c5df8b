{{/*
The name of a cluster-scoped object: (list CONTEXT) or (list CONTEXT SUFFIX).

Release "konnector" in namespace "kube-bind" has the names that `kubectl bind deploy` gives, so that either takes over what
the other installed. Other releases have RELEASE.NAMESPACE, in which a dot separates what holds none.
*/}}
{{- define "konnector.clusterName" -}}
{{- $context := first . -}}
{{- $suffix := rest . -}}
{{- if and (eq $context.Release.Name "konnector") (eq $context.Release.Namespace "kube-bind") -}}
{{- prepend $suffix "kube-bind-konnector" | join "-" -}}
{{- else -}}
{{- prepend $suffix (printf "%s.%s" $context.Release.Name $context.Release.Namespace) | join "." -}}
{{- end -}}
{{- end -}}

{{/* The image, by digest if there is one, else by tag. */}}
{{- define "konnector.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails for what values.schema.json cannot know: the release, and other konnectors of the cluster. */}}
{{- define "konnector.validate" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
{{- fail (printf "release name %q cannot name a ServiceAccount and a Deployment: take lower-case letters, digits and dashes, and begin with a letter" .Release.Name) -}}
{{- end -}}
{{- if hasKey .Values.podLabels "app.kubernetes.io/name" -}}
{{- fail "podLabels: label app.kubernetes.io/name is the chart's, by which the Deployment finds its pods; leave it out" -}}
{{- end -}}
{{- include "konnector.validateArgs" . -}}
{{- $own := include "konnector.clusterName" (list .) -}}
{{- /* The ClusterRoleBinding of a konnector goes with it, as its policies do not. Former releases gave it no label. */ -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "").items -}}
{{- $component := get (.metadata.labels | default dict) "app.kubernetes.io/component" -}}
{{- if and (ne .metadata.name $own) (or (eq $component "konnector") (eq .metadata.name "kube-bind-konnector")) -}}
{{- $account := .subjects | default list | first | default dict -}}
{{- $other := printf "ServiceAccount %s/%s, ClusterRoleBinding %s" (get $account "namespace") (get $account "name") .metadata.name -}}
{{- if eq (get $account "namespace") $.Release.Namespace -}}
{{- fail (printf "another konnector is in namespace %s (%s), and both would take the same Lease and Secrets: install this one in a namespace of its own" $.Release.Namespace $other) -}}
{{- end -}}
{{- $onlyOwn := eq (get (.metadata.annotations | default dict) "bindery.kube-bind.io/only-own-bindings") "true" -}}
{{- if not (and $onlyOwn $.Values.onlyOwnBindings) -}}
{{- fail (printf "this cluster has another konnector (%s), and one of the two would serve the bindings of the other: set onlyOwnBindings=true for both, first for the one that is there, or remove that one" $other) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails for a flag in extraArgs that the chart gives already: the program takes each flag once. */}}
{{- define "konnector.validateArgs" -}}
{{- $given := dict -}}
{{- range include "konnector.args" . | fromYamlArray -}}
{{- $_ := set $given (splitn "=" 2 .)._0 true -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $flag := (splitn "=" 2 .)._0 -}}
{{- if hasKey $given $flag -}}
{{- fail (printf "extraArgs: the chart gives flag %s already; change it by its value, or leave it out" $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
