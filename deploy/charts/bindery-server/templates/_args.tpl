{{/* The flags that the chart gives, of which extraArgs may repeat none. */}}
{{- define "server.args" -}}
- --listen-address=0.0.0.0:8443
- --admin-address=0.0.0.0:8081
- {{ printf "--external-grpc-address=%s" (include "server.grpcAddress" .) | toYaml }}
{{- range .Values.grpc.formerAddresses }}
- {{ printf "--former-grpc-address=%s" . | toYaml }}
{{- end }}
{{- range .Values.grpc.corsAllowedOrigins }}
- {{ printf "--cors-allowed-origins=%s" . | toYaml }}
{{- end }}
{{- with .Values.grpc.maxConnections }}
- --max-connections={{ int64 . }}
{{- end }}
{{- with .Values.grpc.maxConnectionsPerPeer }}
- --max-connections-per-peer={{ int64 . }}
{{- end }}
{{- with .Values.grpc.handshakeTimeout }}
- {{ printf "--handshake-timeout=%s" . | toYaml }}
{{- end }}
{{- with .Values.grpc.firstRequestTimeout }}
- {{ printf "--first-request-timeout=%s" . | toYaml }}
{{- end }}
{{- with .Values.grpc.connectionIdleTimeout }}
- {{ printf "--connection-idle-timeout=%s" . | toYaml }}
{{- end }}
{{- with .Values.grpc.maxConnectionAge }}
- {{ printf "--max-connection-age=%s" . | toYaml }}
{{- end }}
{{- if .Values.authentication.config }}
- --authentication-config=/etc/bindery/authentication/config.yaml
{{- end }}
{{- with .Values.authentication.oidc }}
{{- if .issuerUrl }}
- {{ printf "--oidc-issuer-url=%s" .issuerUrl | toYaml }}
- {{ printf "--oidc-client-id=%s" .clientId | toYaml }}
{{- with .usernameClaim }}
- {{ printf "--oidc-username-claim=%s" . | toYaml }}
{{- end }}
{{- with .usernamePrefix }}
- {{ printf "--oidc-username-prefix=%s" . | toYaml }}
{{- end }}
{{- with .groupsClaim }}
- {{ printf "--oidc-groups-claim=%s" . | toYaml }}
{{- end }}
{{- with .groupsPrefix }}
- {{ printf "--oidc-groups-prefix=%s" . | toYaml }}
{{- end }}
{{- if .ca }}
- --oidc-ca-file=/etc/bindery/authentication/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.authentication.issuerKeys }}
- {{ printf "--issuer-keys=%s=/etc/bindery/authentication/%s" .issuer (include "server.issuerKeysFile" .issuer) | toYaml }}
{{- end }}
{{- with .Values.authentication.loginScopes }}
- {{ printf "--login-scopes=%s" (join "," .) | toYaml }}
{{- end }}
{{- with .Values.kubernetes.address }}
- {{ printf "--external-address=%s" . | toYaml }}
{{- end }}
{{- if .Values.kubernetes.ca }}
- --external-ca-file=/etc/bindery/kubernetes/ca.crt
{{- end }}
{{- with .Values.kubernetes.serverName }}
- {{ printf "--external-server-name=%s" . | toYaml }}
{{- end }}
{{- if ne .Values.tls.mode "self" }}
- --tls-cert-file=/etc/bindery/tls/tls.crt
- --tls-key-file=/etc/bindery/tls/tls.key
{{- if .Values.tls.privateCa }}
- --external-grpc-ca-file=/etc/bindery/tls/ca.crt
{{- end }}
{{- end }}
{{- if .Values.tls.clientCaSecretName }}
- --client-ca-file=/etc/bindery/client-ca/ca.crt
{{- end }}
{{- with .Values.prettyName }}
- {{ printf "--pretty-name=%s" . | toYaml }}
{{- end }}
{{- with .Values.isolation }}
- {{ printf "--isolation=%s" . | toYaml }}
{{- end }}
{{- with .Values.consumerScope }}
- {{ printf "--consumer-scope=%s" . | toYaml }}
{{- end }}
{{- with .Values.claimableResources }}
- --claimable-resources={{ join "," . }}
{{- end }}
{{- with .Values.valuableResources }}
- --valuable-resources={{ join "," . }}
{{- end }}
{{- if .Values.dangerousClusterWideSecretClaims }}
- --dangerous-cluster-wide-secret-claims
{{- end }}
{{- with .Values.maxNamespacesPerContract }}
- --max-namespaces-per-contract={{ int64 . }}
{{- end }}
{{- with .Values.limits.contracts }}
- --limit-contracts={{ int64 . }}
{{- end }}
{{- with .Values.limits.requests }}
- --limit-requests={{ int64 . }}
{{- end }}
{{- with .Values.limits.exportRequests }}
- --limit-export-requests={{ int64 . }}
{{- end }}
{{- with .Values.limits.exports }}
- --limit-exports={{ int64 . }}
{{- end }}
{{- with .Values.limits.retainedObjects }}
- --limit-retained-objects={{ int64 . }}
{{- end }}
{{- with .Values.limits.streams }}
- --limit-streams={{ int64 . }}
{{- end }}
{{- with .Values.limits.callsPerSecond }}
- --limit-calls-per-second={{ int64 . }}
{{- end }}
{{- if .Values.withdrawWithoutPolicy }}
- --withdraw-without-policy
{{- end }}
{{- with .Values.namespacePrefix }}
- {{ printf "--namespace-prefix=%s" . | toYaml }}
{{- end }}
{{- with .Values.tokenLifetime }}
- {{ printf "--token-lifetime=%s" . | toYaml }}
{{- end }}
{{- with .Values.renewalLifetime }}
- {{ printf "--renewal-lifetime=%s" . | toYaml }}
{{- end }}
{{- with .Values.renewalMaxAge }}
- {{ printf "--renewal-max-age=%s" . | toYaml }}
{{- end }}
{{- if not .Values.installCrds }}
- --install-crds=false
{{- end }}
{{- if not .Values.grpcReflection }}
- --grpc-reflection=false
{{- end }}
{{- with .Values.audit.logPath }}
- {{ printf "--audit-log-path=%s" . | toYaml }}
{{- end }}
{{- with .Values.log.filter }}
- {{ printf "--log=%s" . | toYaml }}
{{- end }}
{{- with .Values.log.format }}
- {{ printf "--log-format=%s" . | toYaml }}
{{- end }}
{{- with .Values.traces.endpoint }}
- {{ printf "--trace-endpoint=%s" . | toYaml }}
{{- end }}
{{- with .Values.traces.sample }}
- {{ printf "--trace-sample=%s" . | toYaml }}
{{- end }}
{{- end -}}
