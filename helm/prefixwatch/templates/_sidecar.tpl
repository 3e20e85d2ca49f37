{{/*
The exporter as a sidecar, for pods that are not this chart's. A chart that has this one as a dependency includes it
where its own pod is:

  initContainers:
    {{- include "prefixwatch.sidecar" .Subcharts.prefixwatch | nindent 8 }}
  volumes:
    {{- include "prefixwatch.sidecar.volumes" .Subcharts.prefixwatch | nindent 8 }}
*/}}

{{/* "true" where the sidecar is native, an init container that goes on running; else empty. */}}
{{- define "prefixwatch.sidecar.native" -}}
{{- $native := toString .Values.sidecar.native -}}
{{- $is_known := semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version -}}
{{- if or (eq $native "true") (and (eq $native "auto") $is_known) }}true{{ end -}}
{{- end -}}

{{/* The ConfigMap beside the pods that holds what environment variables cannot say, else empty. */}}
{{- define "prefixwatch.sidecar.configMap" -}}
{{- if .Values.sidecar.configMap.namespaces }}{{ include "prefixwatch.fullname" . }}-sidecar{{ end -}}
{{- end -}}

{{/*
The URL of vLLM as the sidecar sees it. An IPv6 address stands in brackets, and so does $(POD_IP), which may be one: the
exporter drops those of an IPv4 address.
*/}}
{{- define "prefixwatch.sidecar.url" -}}
{{- with .Values.sidecar.target -}}
{{- $is_bare := or (eq .host "$(POD_IP)") (and (contains ":" .host) (not (hasPrefix "[" .host))) -}}
{{- printf "%s://%s:%d%s" .scheme (ternary (printf "[%s]" .host) .host $is_bare) (int .port) .path -}}
{{- end -}}
{{- end -}}

{{/*
The container, as one item of a list. It finds vLLM on the pod's own network and is named by the pod's address, so
that an engine is called the same whoever watches it.

There is no readiness probe: a pod would be taken out of service because its exporter ails. There is no startup probe
either: a native sidecar with one would keep vLLM from starting until it passes. A start takes a second or two, for
which the liveness probe has time enough.
*/}}
{{- define "prefixwatch.sidecar" -}}
{{- $configMap := include "prefixwatch.sidecar.configMap" . -}}
{{- $mounts := include "prefixwatch.volumeMounts" (dict "root" . "configMap" $configMap) | trim -}}
- name: prefixwatch
  image: {{ include "prefixwatch.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if include "prefixwatch.sidecar.native" . }}
  restartPolicy: Always
  {{- end }}
  args: [run{{ if $configMap }}, --config, {{ include "prefixwatch.folder" . }}/config/config.yaml{{ end }}]
  env:
    - name: POD_IP
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    - name: PREFIXWATCH_TARGET_HOST
      value: $(POD_IP)
    - name: PREFIXWATCH_TARGETS
      value: {{ include "prefixwatch.sidecar.url" . | quote }}
    - name: PREFIXWATCH_LISTEN
      value: {{ printf ":%d" (int .Values.sidecar.port) | quote }}
    {{- if not $configMap }}
    {{- include "prefixwatch.sidecar.settings" . | trim | nindent 4 }}
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: prefixwatch
      containerPort: {{ .Values.sidecar.port }}
  livenessProbe:
    {{- include "prefixwatch.probe" (dict "root" . "path" "/healthz" "port" "prefixwatch") | nindent 4 }}
    initialDelaySeconds: 10
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  {{- with .Values.sidecar.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $mounts }}
  volumeMounts:
    {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The volumes that go with it, as items of a list; mostly none. */}}
{{- define "prefixwatch.sidecar.volumes" -}}
{{- include "prefixwatch.volumes" (dict "root" . "configMap" (include "prefixwatch.sidecar.configMap" .)) | trim -}}
{{- end -}}

{{/* What both go into: a part of a pod's template. */}}
{{- define "prefixwatch.sidecar.podTemplate" -}}
{{- $volumes := include "prefixwatch.sidecar.volumes" . -}}
{{- if .Values.scrapeAnnotations -}}
metadata:
  annotations:
    {{- include "prefixwatch.scrapeAnnotations" (dict "root" . "port" (int .Values.sidecar.port)) | nindent 4 }}
{{ end -}}
spec:
  {{ ternary "initContainers" "containers" (eq (include "prefixwatch.sidecar.native" .) "true") }}:
    {{- include "prefixwatch.sidecar" . | nindent 4 }}
  {{- with $volumes }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The exporter's settings in sidecars: polls every second, since nothing else shares the interval. */}}
{{- define "prefixwatch.sidecar.config" -}}
{{- $config := merge (dict) .Values.config (dict "poll_interval" "1s") -}}
{{- with include "prefixwatch.access" .Values.access | fromYaml }}{{ $_ := set $config "access" . }}{{ end -}}
{{- with include "prefixwatch.webConfigFile" . }}{{ $_ := set $config "web_config_file" . }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The same as environment variables. */}}
{{- define "prefixwatch.sidecar.settings" -}}
{{- range $key, $value := include "prefixwatch.sidecar.config" . | fromYaml }}
- name: PREFIXWATCH_{{ upper $key }}
  {{- if kindIs "map" $value }}
  value: {{ join "," $value.endpoints | quote }}
  {{- else if kindIs "slice" $value }}
  value: {{ join "," $value | quote }}
  {{- else if kindIs "float64" $value }}
  value: {{ int64 $value | quote }}
  {{- else }}
  value: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}
