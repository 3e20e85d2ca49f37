{{/*
Refuse what the schema lets through and no one can mean. Each message names the key and the value, and what to do.
*/}}
{{- define "prefixwatch.validate" -}}
{{- include "prefixwatch.validate.config" . -}}
{{- include "prefixwatch.validate.access" (dict "access" .Values.access "path" "access") -}}
{{- if eq .Values.mode "central" -}}
  {{- include "prefixwatch.validate.central" . -}}
{{- else -}}
  {{- include "prefixwatch.validate.sidecar" . -}}
{{- end -}}
{{- range $key := list "serviceMonitor" "podMonitor" -}}
  {{- include "prefixwatch.validate.times" (dict "key" $key "values" (get $.Values $key)) -}}
{{- end -}}
{{- with .Values.rules.settings.alerts.PrefixCacheHitRatioDropped -}}
  {{- if gt (float64 .share_critical) (float64 .share_warning) -}}
    {{- fail (printf "rules.settings.alerts.PrefixCacheHitRatioDropped.share_critical: %v is above share_warning, %v: what is critical must be lower" .share_critical .share_warning) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.webConfig.tls (not .Values.webConfig.secretName) -}}
  {{- fail "webConfig.tls: true, but no webConfig.secretName: name the Secret that holds the exporter's web configuration file" -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.validate.central" -}}
{{- if not (or .Values.targets .Values.config.targets_file) -}}
  {{- fail "targets: empty: the central exporter would watch nothing. Name a headless Service of your vLLM pods, e.g. `targets: [{service: vllm, namespace: chat, port: 8000}]`; or set `mode: sidecar`" -}}
{{- end -}}
{{- include "prefixwatch.validate.targets" . -}}
{{- $full := include "prefixwatch.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $full) -}}
  {{- fail (printf "fullnameOverride: empty, and %q, of the release's name, cannot be a Service's: lower-case letters, digits and hyphens, a letter first. Set it, or install under another name" $full) -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
  {{- fail "podMonitor.enabled: true beside serviceMonitor.enabled: true: Prometheus would scrape the exporter twice; turn one off" -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.validate.sidecar" -}}
{{- if .Values.targets -}}
  {{- fail "targets: not empty in mode sidecar: a sidecar watches the vLLM of its pod, see sidecar.target; or set `mode: central`" -}}
{{- end -}}
{{- if .Values.serviceMonitor.enabled -}}
  {{- fail "serviceMonitor.enabled: true in mode sidecar: sidecars have no Service; use podMonitor.enabled" -}}
{{- end -}}
{{- if .Values.networkPolicy.enabled -}}
  {{- fail (printf "networkPolicy.enabled: true in mode sidecar: the pods are not this release's; let Prometheus reach port %d in your own policy of them" (int .Values.sidecar.port)) -}}
{{- end -}}
{{- if eq (int .Values.sidecar.port) (int .Values.sidecar.target.port) -}}
  {{- fail (printf "sidecar.port: %d is vLLM's, sidecar.target.port: both listen in one pod, so choose another" (int .Values.sidecar.port)) -}}
{{- end -}}
{{- if contains "," .Values.sidecar.target.path -}}
  {{- fail (printf "sidecar.target.path: %q: a comma separates the targets in the exporter's environment; write %%2C" .Values.sidecar.target.path) -}}
{{- end -}}
{{- if and (eq (toString .Values.sidecar.native) "true") (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
  {{- fail (printf "sidecar.native: true: Kubernetes %s has no native sidecars, which came with 1.29; use `auto` or `false`" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if not .Values.sidecar.configMap.namespaces -}}
  {{- $needs := list -}}
  {{- range $key, $value := .Values.config -}}
    {{- if and (kindIs "map" $value) (not (and (eq $key "events") (eq (keys $value | join ",") "endpoints"))) -}}
      {{- $needs = append $needs (printf "config.%s" $key) -}}
    {{- end -}}
  {{- end -}}
  {{- if include "prefixwatch.access" .Values.access | trim }}{{ $needs = append $needs "access" }}{{ end -}}
  {{- with $needs -}}
    {{- fail (printf "%s: environment variables cannot say that, and the pods are in other namespaces: list these in sidecar.configMap.namespaces, and each gets a ConfigMap" (sortAlpha . | join ", ")) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.validate.config" -}}
{{- range $key, $instead := dict "targets" "`targets`, beside `config`" "listen" "`port`, or `sidecar.port`" "access" "`access`, beside `config`" "web_config_file" "`webConfig`" "target_host" "`sidecar.target`; a sidecar is named by its pod's address" -}}
  {{- if hasKey $.Values.config $key -}}
    {{- fail (printf "config.%s: is not set here; use %s" $key $instead) -}}
  {{- end -}}
{{- end -}}
{{- include "prefixwatch.validate.windows" . -}}
{{- include "prefixwatch.validate.events" (dict "events" (.Values.config.events | default dict) "path" "config.events") -}}
{{- end -}}

{{/* Where nothing is set, all of the exporter's default windows have to hold: an alert and the dashboards are of the shortest. */}}
{{- define "prefixwatch.validate.windows" -}}
{{- $windows := .Values.config.windows | default (list "1m" "5m" "1h") -}}
{{- $poll := .Values.config.poll_interval | default (eq .Values.mode "central" | ternary "5s" "1s") -}}
{{- $lengths := list -}}
{{- range $windows -}}
  {{- $lengths = append $lengths (include "prefixwatch.milliseconds" .) -}}
  {{- if lt (last $lengths | float64) (include "prefixwatch.milliseconds" $poll | mulf 2) -}}
    {{- fail (printf "config.poll_interval: %q: the window %q, of config.windows, is shorter than two polls" $poll .) -}}
  {{- end -}}
{{- end -}}
{{- with .Values.config.diagnosis_window -}}
  {{- if not (has (include "prefixwatch.milliseconds" .) $lengths) -}}
    {{- fail (printf "config.diagnosis_window: %q is none of config.windows (%s); add it there" . (join ", " $windows)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* The length of one of the exporter's durations, such as 1m30s or 500ms. */}}
{{- define "prefixwatch.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h|d)" . -1 -}}
  {{- $sum = addf $sum (mulf (regexFind "[0-9.]+" .) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "prefixwatch.validate.access" -}}
{{- with .access.ca -}}
  {{- if and .secretName .configMapName -}}
    {{- fail (printf "%s.ca: has both secretName and configMapName; give one" $.path) -}}
  {{- end -}}
{{- end -}}
{{- range $kind, $source := .access -}}
  {{- if and $source (not $source.secretName) (not $source.configMapName) -}}
    {{- fail (printf "%s.%s: names no Secret; set %s.%s.secretName" $.path $kind $.path $kind) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.validate.times" -}}
{{- with .values -}}
  {{- if and .enabled .scrapeTimeout -}}
    {{- if gt (include "prefixwatch.rules.seconds" .scrapeTimeout | int) (include "prefixwatch.rules.seconds" .interval | int) -}}
      {{- fail (printf "%s.scrapeTimeout: %q is longer than %s.interval, %q; Prometheus refuses that" $.key .scrapeTimeout $.key .interval) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
