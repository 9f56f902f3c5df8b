{{/* The flags that the chart gives, of which extraArgs may repeat none. */}}
{{- define "konnector.args" -}}
- --server-address=0.0.0.0:8090
- --account-policies={{ include "konnector.clusterName" (list .) }}
{{- with .Values.pollingInterval }}
- {{ printf "--provider-polling-interval=%s" . | toYaml }}
{{- end }}
{{- with .Values.heartbeatInterval }}
- --heartbeat-interval={{ . }}
{{- end }}
{{- with .Values.providerMaxObjects }}
- --provider-max-objects={{ int64 . }}
{{- end }}
{{- with .Values.providerMaxBytes }}
- --provider-max-bytes={{ . }}
{{- end }}
{{- if ne .Values.adoption "off" }}
- --adoption={{ .Values.adoption }}
{{- end }}
{{- if .Values.onlyOwnBindings }}
- --only-own-bindings
{{- end }}
{{- $bundles := include "konnector.clusterName" (list . "bundles") }}
{{- if ne $bundles "kube-bind-konnector-bundles" }}
- --bundles-role={{ $bundles }}
{{- end }}
{{- if not .Values.installCrds }}
- --install-crds=false
{{- end }}
{{- with .Values.log.filter }}
- {{ printf "--log=%s" . | toYaml }}
{{- end }}
{{- with .Values.log.format }}
- --log-format={{ . }}
{{- end }}
{{- with .Values.traces.endpoint }}
- {{ printf "--trace-endpoint=%s" . | toYaml }}
{{- end }}
{{- with .Values.traces.sample }}
- {{ printf "--trace-sample=%s" . | toYaml }}
{{- end }}
{{- end -}}
