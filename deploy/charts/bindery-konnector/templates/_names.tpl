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
{{- if not .Values.onlyOwnBindings -}}
{{- $own := include "konnector.clusterName" (list .) -}}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" "").items -}}
{{- $isKonnector := eq (get (.metadata.labels | default dict) "app.kubernetes.io/component") "konnector" -}}
{{- if and (ne .metadata.name $own) (or $isKonnector (eq .metadata.name "kube-bind-konnector")) -}}
{{- fail (printf "this cluster has another konnector already, whose ValidatingAdmissionPolicy is %s, and both would serve the same bindings: set onlyOwnBindings=true for both, or remove that one" .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
