{{/* The targets of central mode: each by itself, then beside the others. */}}
{{- define "prefixwatch.validate.targets" -}}
{{- range $position, $target := .Values.targets -}}
  {{- include "prefixwatch.validate.target" (dict "target" $target "path" (printf "targets[%d]" $position)) -}}
{{- end -}}
{{- $own := printf "%s/%s" .Release.Namespace (include "prefixwatch.fullname" .) -}}
{{- $names := dict -}}
{{- $made := dict -}}
{{- range $position, $target := .Values.targets -}}
  {{- $service := printf "%s/%s" .namespace .service -}}
  {{- if and .service (eq $service $own) -}}
    {{- fail (printf "targets[%d].service: %s is the exporter's own Service; name that of your vLLM pods, or set fullnameOverride" $position $own) -}}
  {{- end -}}
  {{- if .selector -}}
    {{- with get $made $service -}}
      {{- fail (printf "targets[%d].selector: %s makes the Service %s already; leave `selector` out here, its addresses serve for another port as well" $position . $service) -}}
    {{- end -}}
    {{- $_ := set $made $service (printf "targets[%d]" $position) -}}
  {{- end -}}
  {{- if .url -}}
    {{- $name := include "prefixwatch.targetName" . -}}
    {{- with get $names $name -}}
      {{- fail (printf "targets[%d]: %q is %s already; give one of them a `name` of its own" $position $name .) -}}
    {{- end -}}
    {{- $_ := set $names $name (printf "targets[%d]" $position) -}}
  {{- end -}}
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
{{- with $one.url | default $one.dns -}}
  {{- include "prefixwatch.validate.url" (dict "url" . "kind" (first $kinds) "path" $.path) -}}
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
{{- include "prefixwatch.validate.events" (dict "events" ($one.events | default dict) "path" (printf "%s.events" .path)) -}}
{{- include "prefixwatch.validate.access" (dict "access" ($one.access | default dict) "path" (printf "%s.access" .path)) -}}
{{- end -}}

{{/* A URL is not repeated: it might hold credentials. */}}
{{- define "prefixwatch.validate.url" -}}
{{- $authority := include "prefixwatch.authority" .url -}}
{{- if contains "@" $authority -}}
  {{- fail (printf "%s.%s: credentials have no place in a URL; use %s.access.bearerToken" .path .kind .path) -}}
{{- end -}}
{{- if not (regexMatch "^(\\[[0-9A-Fa-f:.]+\\]|[^\\[\\]:]+)(:[0-9]{1,5})?$" $authority) -}}
  {{- fail (printf "%s.%s: is not a URL; use a form like http://gpu-1:8000/metrics or, for an IPv6 address, http://[fd00::1]:8000/metrics" .path .kind) -}}
{{- end -}}
{{- with regexFind ":[0-9]+$" $authority | trimPrefix ":" -}}
  {{- if or (lt (atoi .) 1) (gt (atoi .) 65535) -}}
    {{- fail (printf "%s.%s: %s is not a port; these are 1 to 65535" $.path $.kind .) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.validate.events" -}}
{{- with .events.replay_endpoints -}}
  {{- $endpoints := $.events.endpoints | default list -}}
  {{- if ne (len .) (len $endpoints) -}}
    {{- fail (printf "%s.replay_endpoints: %d of them beside %d endpoints: give as many, or none" $.path (len .) (len $endpoints)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
