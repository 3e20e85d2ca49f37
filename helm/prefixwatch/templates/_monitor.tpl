{{/* What a ServiceMonitor and a PodMonitor have in common: `values` of either, the `kind`, `port`, `honorLabels`. */}}
{{- define "prefixwatch.monitor.metadata" -}}
name: {{ include "prefixwatch.fullname" .root }}
namespace: {{ .values.namespace | default .root.Release.Namespace }}
labels:
  {{- merge (dict) .values.additionalLabels (include "prefixwatch.labels" .root | fromYaml) | toYaml | nindent 2 }}
{{- with .values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "prefixwatch.monitor.endpoint" -}}
- port: {{ .port }}
  path: /metrics
  scheme: {{ include "prefixwatch.scheme" .root }}
  interval: {{ .values.interval }}
  {{- with .values.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- if .honorLabels }}
  # namespace, cluster and whatever else a target was given are the engine's, not the exporter's.
  honorLabels: true
  {{- end }}
  {{- $relabelings := list -}}
  {{- with .root.Values.cluster -}}
  {{- /* In a replacement, $1 stands for a part of what was matched, and $$ for a dollar. */ -}}
  {{- $escaped := replace "$" "$$" . -}}
  {{- $relabelings = append $relabelings (dict "action" "replace" "targetLabel" "cluster" "replacement" $escaped) -}}
  {{- end -}}
  {{- with concat $relabelings .values.relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $key := list "metricRelabelings" "tlsConfig" "basicAuth" "authorization" }}
  {{- with get $.values $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end -}}
