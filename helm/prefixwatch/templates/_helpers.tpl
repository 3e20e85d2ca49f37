{{/* The chart's name, or what takes its place. */}}
{{- define "prefixwatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
The release's full name. 44 letters: the longest suffix of the chart's objects still fits into 63. A longer name ends in
its hash, so that two that differ only at their end stay two.
*/}}
{{- define "prefixwatch.fullname" -}}
{{- $name := include "prefixwatch.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- $full = default $full .Values.fullnameOverride -}}
{{- if gt (len $full) 44 -}}
{{ trunc 35 $full | trimSuffix "-" }}-{{ sha256sum $full | trunc 8 }}
{{- else -}}
{{ $full }}
{{- end -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "prefixwatch.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "prefixwatch.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: prefixwatch
{{- end -}}

{{/* What never changes: labels by which the exporter's pods are selected. */}}
{{- define "prefixwatch.selectorLabels" -}}
app.kubernetes.io/name: {{ include "prefixwatch.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: exporter
{{- end -}}

{{/* The same of the pod of `helm test`. */}}
{{- define "prefixwatch.testLabels" -}}
app.kubernetes.io/name: {{ include "prefixwatch.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "prefixwatch.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "prefixwatch.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The scheme of the exporter's own listener. */}}
{{- define "prefixwatch.scheme" -}}
{{ .Values.webConfig.tls | ternary "https" "http" }}
{{- end -}}

{{/*
Probes ask for the exporter itself alone. An engine that is down is its finding, not its fault: a probe that
depended on vLLM would restart the one that reports it.
*/}}
{{- define "prefixwatch.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  scheme: {{ include "prefixwatch.scheme" .root | upper }}
{{- end -}}

{{/* Of the central pod. What the user adds goes before what Prometheus reads, not before what restarts the exporter. */}}
{{- define "prefixwatch.podAnnotations" -}}
{{- $found := dict "checksum/config" (include "prefixwatch.config" . | sha256sum) -}}
{{- $found = merge $found .Values.podAnnotations -}}
{{- if .Values.scrapeAnnotations -}}
{{- $found = merge $found (include "prefixwatch.scrapeAnnotations" (dict "root" . "port" (int .Values.port)) | fromYaml) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Annotations for a Prometheus without the operator. */}}
{{- define "prefixwatch.scrapeAnnotations" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- if .root.Values.webConfig.tls }}
prometheus.io/scheme: https
{{- end }}
{{- end -}}
