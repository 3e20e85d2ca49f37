{{/* Where the exporter finds what the chart mounts. */}}
{{- define "prefixwatch.folder" -}}/etc/prefixwatch{{- end -}}

{{/* The exporter's configuration in central mode. */}}
{{- define "prefixwatch.config" -}}
{{- $config := merge (dict "listen" (printf ":%d" (int .Values.port))) .Values.config -}}
{{- $targets := list -}}
{{- range .Values.targets -}}
  {{- $targets = append $targets (include "prefixwatch.target" (dict "target" . "root" $) | fromYaml) -}}
{{- end -}}
{{- if $targets }}{{ $_ := set $config "targets" $targets }}{{ end -}}
{{- with include "prefixwatch.access" .Values.access | fromYaml }}{{ $_ := set $config "access" . }}{{ end -}}
{{- with include "prefixwatch.webConfigFile" . }}{{ $_ := set $config "web_config_file" . }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* One of its targets; a headless Service is a DNS name whose addresses are polled one by one. */}}
{{- define "prefixwatch.target" -}}
{{- $one := .target -}}
{{- $found := pick $one "url" "dns" "name" "events" -}}
{{- if $one.service }}{{ $_ := set $found "dns" (include "prefixwatch.targetAddress" $one) }}{{ end -}}
{{- $identity := dict "namespace" $one.namespace -}}
{{- with .root.Values.cluster }}{{ $_ := set $identity "cluster" . }}{{ end -}}
{{- $_ := set $found "labels" (merge $identity ($one.labels | default dict)) -}}
{{- with include "prefixwatch.access" ($one.access | default dict) | fromYaml }}{{ $_ := set $found "access" . }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{- define "prefixwatch.targetAddress" -}}
{{ .scheme | default "http" }}://{{ .service }}.{{ .namespace }}.svc:{{ .port | default 8000 | int }}{{ .path | default "/metrics" }}
{{- end -}}

{{/* The port that a target is polled at. */}}
{{- define "prefixwatch.targetPort" -}}
{{- if .service -}}
{{ .port | default 8000 | int }}
{{- else -}}
{{- $url := .url | default .dns -}}
{{ include "prefixwatch.authority" $url | regexFind ":[0-9]+$" | trimPrefix ":" | default (hasPrefix "https:" $url | ternary "443" "80") }}
{{- end -}}
{{- end -}}

{{/* What stands in a URL between the scheme and the path. */}}
{{- define "prefixwatch.authority" -}}
{{ regexFind "^https?://[^/?#]*" . | trimPrefix "http://" | trimPrefix "https://" }}
{{- end -}}

{{/* The label `target` of a URL, as the exporter gives it. */}}
{{- define "prefixwatch.targetName" -}}
{{- $host := regexReplaceAll ":[0-9]+$" (include "prefixwatch.authority" .url) "" | lower -}}
{{ .name | default (printf "%s:%s" $host (include "prefixwatch.targetPort" .)) }}
{{- end -}}

{{/* The ports at which a target's cache events are published, as a list. */}}
{{- define "prefixwatch.eventPorts" -}}
{{- $ports := list -}}
{{- with . -}}
{{- range concat (.endpoints | default list) (.replay_endpoints | default list) -}}
  {{- with regexFind ":[0-9]+$" . }}{{ $ports = append $ports (trimPrefix ":" . | int) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toYaml -}}
{{- end -}}

{{/* Credentials as the exporter takes them: paths of files in Secrets and ConfigMaps that are mounted whole. */}}
{{- define "prefixwatch.access" -}}
{{- $folder := printf "%s/access" (include "prefixwatch.folder" .) -}}
{{- with .bearerToken -}}
{{- if .secretName }}
bearer_token_file: {{ $folder }}/secret/{{ .secretName }}/{{ .key | default "token" }}
{{- end -}}
{{- end -}}
{{- with .ca -}}
{{- if .secretName }}
ca_file: {{ $folder }}/secret/{{ .secretName }}/{{ .key | default "ca.crt" }}
{{- else if .configMapName }}
ca_file: {{ $folder }}/configmap/{{ .configMapName }}/{{ .key | default "ca.crt" }}
{{- end -}}
{{- end -}}
{{- with .clientCertificate -}}
{{- if .secretName }}
cert_file: {{ $folder }}/secret/{{ .secretName }}/{{ .certKey | default "tls.crt" }}
key_file: {{ $folder }}/secret/{{ .secretName }}/{{ .keyKey | default "tls.key" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "prefixwatch.webConfigFile" -}}
{{- with .Values.webConfig -}}
{{- if .secretName -}}
{{ include "prefixwatch.folder" $ }}/web/{{ .key }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Secrets and ConfigMaps that `access` names, each once: "secret/NAME" and "configmap/NAME", as a list. */}}
{{- define "prefixwatch.accessSources" -}}
{{- $found := list -}}
{{- $all := list .Values.access -}}
{{- range .Values.targets }}{{ $all = append $all (.access | default dict) }}{{ end -}}
{{- range $all -}}
  {{- range values (pick . "bearerToken" "ca" "clientCertificate") -}}
    {{- if .secretName }}{{ $found = append $found (printf "secret/%s" .secretName) }}{{ end -}}
    {{- if .configMapName }}{{ $found = append $found (printf "configmap/%s" .configMapName) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $found | uniq | sortAlpha | toYaml -}}
{{- end -}}

{{/*
Volumes of the exporter: its configuration from the ConfigMap `configMap` (none where empty), credentials, and what
the user adds. A list, empty where there are none. Secrets keep their default mode: a narrower one would need the pod's
fsGroup, and a sidecar's pod is not ours.
*/}}
{{- define "prefixwatch.volumes" -}}
{{- if .configMap }}
- name: prefixwatch-config
  configMap:
    name: {{ .configMap }}
{{- end }}
{{- range include "prefixwatch.accessSources" .root | fromYamlArray }}
- name: prefixwatch-{{ sha256sum . | trunc 10 }}
{{- if hasPrefix "secret/" . }}
  secret:
    secretName: {{ trimPrefix "secret/" . }}
{{- else }}
  configMap:
    name: {{ trimPrefix "configmap/" . }}
{{- end }}
{{- end }}
{{- with .root.Values.webConfig.secretName }}
- name: prefixwatch-web
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where the container has them. */}}
{{- define "prefixwatch.volumeMounts" -}}
{{- $folder := include "prefixwatch.folder" . -}}
{{- if .configMap }}
- name: prefixwatch-config
  mountPath: {{ $folder }}/config
  readOnly: true
{{- end }}
{{- range include "prefixwatch.accessSources" .root | fromYamlArray }}
- name: prefixwatch-{{ sha256sum . | trunc 10 }}
  mountPath: {{ $folder }}/access/{{ . }}
  readOnly: true
{{- end }}
{{- if .root.Values.webConfig.secretName }}
- name: prefixwatch-web
  mountPath: {{ $folder }}/web
  readOnly: true
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
