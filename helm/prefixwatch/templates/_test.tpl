{{/* The program's arguments: whom to ask, and for what. */}}
{{- define "prefixwatch.test.arguments" -}}
{{- $full := include "prefixwatch.fullname" . -}}
{{- $arguments := list "/etc/prefixwatch/test/ask.py" (printf "--timeout=%s" (include "prefixwatch.rules.seconds" .Values.test.timeout)) -}}
{{- if eq .Values.mode "central" -}}
  {{- $url := printf "%s://%s.%s.svc:%d" (include "prefixwatch.scheme" .) $full .Release.Namespace (int .Values.service.port) -}}
  {{- $arguments = append $arguments (printf "--exporter=%s" $url) -}}
  {{- if .Values.test.credentialsSecretName -}}
    {{- $arguments = append $arguments "--credentials=/etc/prefixwatch/credentials" -}}
  {{- end -}}
{{- end -}}
{{- with .Values.test.prometheusUrl -}}
  {{- $arguments = append $arguments (printf "--prometheus=%s" .) -}}
{{- end -}}
{{- if .Values.serviceMonitor.enabled -}}
  {{- $selector := printf "job=%q,namespace=%q" $full .Release.Namespace -}}
  {{- $arguments = concat $arguments (list "--monitor=ServiceMonitor" (printf "--job=%s" $full) (printf "--selector=%s" $selector)) -}}
{{- else if .Values.podMonitor.enabled -}}
  {{- $job := printf "%s/%s" (.Values.podMonitor.namespace | default .Release.Namespace) $full -}}
  {{- $arguments = concat $arguments (list "--monitor=PodMonitor" (printf "--job=%s" $job) (printf "--selector=job=%q" $job)) -}}
{{- end -}}
{{- if .Values.rules.prometheusRule.enabled -}}
  {{- $groups := list -}}
  {{- range include "prefixwatch.rules" . | fromJson -}}
    {{- range .groups }}{{ $groups = append $groups .name }}{{ end -}}
  {{- end -}}
  {{- $arguments = append $arguments (printf "--groups=%s" (join "," $groups)) -}}
{{- end -}}
{{- toYaml $arguments -}}
{{- end -}}
