{{/*
The name of a cluster-scoped object that belongs to this release alone: (list CONTEXT) or (list CONTEXT SUFFIX).

Release "bindery-server" in namespace "kube-bind" has the names of `deploy/server`, so that the release takes over what was
applied from there. Other releases have RELEASE.NAMESPACE, in which a dot separates what holds none.

The roles of consumers, the aggregated role and the policies keep one name whatever the release is called: the RoleBindings of
contracts refer to them, and a RoleBinding cannot be changed to refer to another role. A cluster has one server.
*/}}
{{- define "server.clusterName" -}}
{{- $context := first . -}}
{{- $suffix := rest . -}}
{{- if and (eq $context.Release.Name "bindery-server") (eq $context.Release.Namespace "kube-bind") -}}
{{- prepend $suffix "bindery-server" | join "-" -}}
{{- else -}}
{{- prepend $suffix (printf "%s.%s" $context.Release.Name $context.Release.Namespace) | join "." -}}
{{- end -}}
{{- end -}}

{{/* The image, by digest if there is one, else by tag. */}}
{{- define "server.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The DNS name of the Service, which clients inside of the cluster can reach. */}}
{{- define "server.serviceName" -}}
{{ .Release.Name }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The URL at which clients reach the gRPC port; the Service's own if none is given. */}}
{{- define "server.grpcAddress" -}}
{{- if .Values.grpc.address -}}
{{ .Values.grpc.address }}
{{- else -}}
https://{{ include "server.serviceName" . }}:{{ .Values.service.port }}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate of the gRPC port; empty if the server makes the certificate. */}}
{{- define "server.tlsSecret" -}}
{{- if eq .Values.tls.mode "secret" -}}
{{ .Values.tls.secretName }}
{{- else if eq .Values.tls.mode "certManager" -}}
{{ .Values.tls.secretName | default (printf "%s-grpc" .Release.Name) }}
{{- end -}}
{{- end -}}

{{/* The file with the keys of an issuer: a ConfigMap's key, which cannot be a URL. */}}
{{- define "server.issuerKeysFile" -}}
keys-{{ sha256sum . | trunc 16 }}.json
{{- end -}}

{{/* Whether the server calls issuers of ID tokens, or reads files about them: any text, or nothing. */}}
{{- define "server.issuers" -}}
{{- if or .Values.authentication.config .Values.authentication.oidc.issuerUrl -}}
yes
{{- end -}}
{{- end -}}
{{- define "server.authenticationFiles" -}}
{{- if or .Values.authentication.config .Values.authentication.oidc.ca .Values.authentication.issuerKeys -}}
yes
{{- end -}}
{{- end -}}

{{/* Fails for what values.schema.json cannot know. */}}
{{- define "server.validate" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
{{- fail (printf "release name %q cannot name a ServiceAccount and a Service: take lower-case letters, digits and dashes, and begin with a letter" .Release.Name) -}}
{{- end -}}
{{- if hasKey .Values.podLabels "app.kubernetes.io/name" -}}
{{- fail "podLabels: label app.kubernetes.io/name is the chart's, by which the Deployment finds its pods; leave it out" -}}
{{- end -}}
{{- if hasKey .Values.podAnnotations "bindery.kube-bind.io/kubernetes-ca" -}}
{{- fail "podAnnotations: annotation bindery.kube-bind.io/kubernetes-ca is the chart's, which starts new pods for a new CA; leave it out" -}}
{{- end -}}
{{- include "server.validateAuthentication" . -}}
{{- include "server.validateArgs" . -}}
{{- end -}}

{{- define "server.validateAuthentication" -}}
{{- with .Values.authentication -}}
{{- if and .config .oidc.issuerUrl -}}
{{- fail "authentication: config and oidc.issuerUrl exclude each other; put the issuer into config" -}}
{{- end -}}
{{- if and .oidc.issuerUrl (not .oidc.clientId) -}}
{{- fail "authentication.oidc.clientId is required with issuerUrl" -}}
{{- end -}}
{{- if not .oidc.issuerUrl -}}
{{- range $name, $value := .oidc -}}
{{- if $value -}}
{{- fail (printf "authentication.oidc.%s needs issuerUrl" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .oidc.groupsPrefix (not .oidc.groupsClaim) -}}
{{- fail "authentication.oidc.groupsPrefix needs groupsClaim" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails for a flag in extraArgs that the chart gives already: the program takes each flag once. */}}
{{- define "server.validateArgs" -}}
{{- $given := dict -}}
{{- range include "server.args" . | fromYamlArray -}}
{{- $_ := set $given (splitn "=" 2 .)._0 true -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $flag := (splitn "=" 2 .)._0 -}}
{{- if hasKey $given $flag -}}
{{- fail (printf "extraArgs: the chart gives flag %s already; change it by its value, or leave it out" $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
