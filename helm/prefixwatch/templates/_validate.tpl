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
{{- if and .Values.webConfig.tls (not .Values.webConfig.secretName) -}}
  {{- fail "webConfig.tls: true, but no webConfig.secretName: name the Secret that holds the exporter's web configuration file" -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.validate.central" -}}
{{- if not (or .Values.targets .Values.config.targets_file) -}}
  {{- fail "targets: empty: the central exporter would watch nothing. Name a headless Service of your vLLM pods, e.g. `targets: [{service: vllm, namespace: chat, port: 8000}]`; or set `mode: sidecar`" -}}
{{- end -}}
{{- range $position, $target := .Values.targets -}}
  {{- include "prefixwatch.validate.target" (dict "target" $target "path" (printf "targets[%d]" $position)) -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
  {{- fail "podMonitor.enabled: true beside serviceMonitor.enabled: true: Prometheus would scrape the exporter twice; turn one off" -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.validate.target" -}}
{{- $one := .target -}}
{{- $kinds := list -}}
{{- range $kind := list "service" "dns" "url" }}{{ if get $one $kind }}{{ $kinds = append $kinds $kind }}{{ end }}{{ end -}}
{{- if ne (len $kinds) 1 -}}
  {{- fail (printf "%s: has %s: give exactly one of `service` (a headless Service), `dns` (another name) and `url` (one engine)" .path (join " and " $kinds | default "none")) -}}
{{- end -}}
{{- if not $one.namespace -}}
  {{- fail (printf "%s.namespace: missing: it becomes the label `namespace` of the engine, which would else be the exporter's. For an engine outside Kubernetes give a word for where it is, like `bare-metal`" .path) -}}
{{- end -}}
{{- $address := $one.url | default $one.dns -}}
{{- if and $address (contains "@" $address) -}}
  {{- fail (printf "%s.%s: credentials have no place in a URL; use %s.access.bearerToken" .path (first $kinds) .path) -}}
{{- end -}}
{{- if not $one.service -}}
  {{- range $key := list "port" "path" "scheme" "selector" -}}
    {{- if hasKey $one $key -}}
      {{- fail (printf "%s.%s: %v: goes with `service` only; write it into the URL" $.path $key (get $one $key)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and $one.name (not $one.url) -}}
  {{- fail (printf "%s.name: %q: goes with `url` only; a %s stands for many engines, each named by its address" .path $one.name (first $kinds)) -}}
{{- end -}}
{{- range $label, $_ := $one.labels | default dict -}}
  {{- if has $label (list "cluster" "namespace") -}}
    {{- fail (printf "%s.labels.%s: is not set here; use %s" $.path $label (eq $label "cluster" | ternary "`cluster`" (printf "%s.namespace" $.path))) -}}
  {{- end -}}
  {{- if has $label (list "target" "model_name" "engine" "window" "bound" "source" "cause" "caveat" "reason" "quantile" "dialect" "release" "pool" "rank" "dns" "le" "version" "job" "instance") -}}
    {{- fail (printf "%s.labels.%s: is one of the exporter's own labels; choose another name" $.path $label) -}}
  {{- end -}}
{{- end -}}
{{- include "prefixwatch.validate.access" (dict "access" ($one.access | default dict) "path" (printf "%s.access" .path)) -}}
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
{{- with .Values.config -}}
  {{- if and .diagnosis_window .windows (not (has .diagnosis_window .windows)) -}}
    {{- fail (printf "config.diagnosis_window: %q is none of config.windows (%s); add it there" .diagnosis_window (join ", " .windows)) -}}
  {{- end -}}
{{- end -}}
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
