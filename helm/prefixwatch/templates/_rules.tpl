{{/*
The rules files as JSON, {file: {groups: [...]}}, with rules.settings filled in and without the alerts that are off.
A file of which no rule is left is not there. Nothing here is a template of Helm's: annotations hold Prometheus's own.
*/}}
{{- define "prefixwatch.rules" -}}
{{- $found := dict -}}
{{- range $path, $_ := .Files.Glob "files/rules/*.yaml" -}}
  {{- $state := dict "text" ($.Files.Get $path | fromYaml | toJson) -}}
  {{- include "prefixwatch.rules.fill" (dict "state" $state "above" "" "settings" $.Values.rules.settings) -}}
  {{- with regexFind "\\$\\{[^}]*\\}" $state.text -}}
    {{- fail (printf "%s: no value of rules.settings fills in %s; the chart is damaged, install it anew" $path .) -}}
  {{- end -}}
  {{- $groups := list -}}
  {{- range (fromJson $state.text).groups -}}
    {{- $rules := list -}}
    {{- range .rules -}}
      {{- if not .alert -}}
        {{- $rules = append $rules . -}}
      {{- else if (get $.Values.rules.alerts .alert).enabled -}}
        {{- $own := .labels -}}
        {{- range $name, $_ := $.Values.rules.additionalRuleLabels -}}
          {{- if or (hasKey $own $name) (eq $name "alertname") -}}
            {{- fail (printf "rules.additionalRuleLabels.%s: alerts have this label already; give yours another name" $name) -}}
          {{- end -}}
        {{- end -}}
        {{- $rules = append $rules (set . "labels" (merge $own $.Values.rules.additionalRuleLabels)) -}}
      {{- end -}}
    {{- end -}}
    {{- if $rules -}}
      {{- $groups = append $groups (set . "rules" $rules) -}}
    {{- end -}}
  {{- end -}}
  {{- if $groups -}}
    {{- $_ := set $found (base $path) (dict "groups" $groups) -}}
  {{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/*
Put each setting where its path stands in state.text, which is JSON: ${path}, for durations ${seconds path} as well,
and for lists ${if path}...${end path}, which is left out where the list is empty.
*/}}
{{- define "prefixwatch.rules.fill" -}}
{{- $state := .state -}}
{{- range $key, $value := .settings -}}
  {{- $path := printf "%s%s" $.above $key -}}
  {{- $mark := printf "${%s}" $path -}}
  {{- if kindIs "map" $value -}}
    {{- include "prefixwatch.rules.fill" (dict "state" $state "above" (printf "%s." $path) "settings" $value) -}}
  {{- else if kindIs "slice" $value -}}
    {{- $if := printf "${if %s}" $path -}}
    {{- $end := printf "${end %s}" $path -}}
    {{- if not $value -}}
      {{- $optional := printf "%s.*?%s" (regexQuoteMeta $if) (regexQuoteMeta $end) -}}
      {{- $_ := set $state "text" (regexReplaceAllLiteral $optional $state.text "") -}}
    {{- end -}}
    {{- $names := include "prefixwatch.rules.anyOf" $value | toJson | trimPrefix "\"" | trimSuffix "\"" -}}
    {{- $_ := set $state "text" ($state.text | replace $if "" | replace $end "" | replace $mark $names) -}}
  {{- else if kindIs "string" $value -}}
    {{- $text := $value -}}
    {{- if hasPrefix "links." $path -}}
      {{- $text = regexReplaceAllLiteral "/+$" $value "" -}}
      {{- if eq $path "links.runbooks" }}{{ $text = default "alerts/runbooks" $text }}{{ end -}}
    {{- end -}}
    {{- $json := toJson $text | trimPrefix "\"" | trimSuffix "\"" -}}
    {{- $_ := set $state "text" ($state.text | replace $mark $json) -}}
    {{- $seconds := printf "${seconds %s}" $path -}}
    {{- if contains $seconds $state.text -}}
      {{- $_ := set $state "text" ($state.text | replace $seconds (include "prefixwatch.rules.seconds" $value)) -}}
    {{- end -}}
  {{- else -}}
    {{- $_ := set $state "text" ($state.text | replace $mark (toJson $value)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/*
A regular expression that matches these names alone, as it stands between PromQL's double quotes.
*/}}
{{- define "prefixwatch.rules.anyOf" -}}
{{- $names := list -}}
{{- range . }}{{ $names = append $names (regexQuoteMeta .) }}{{ end -}}
{{- join "|" $names | replace "\\" "\\\\" | replace "\"" "\\\"" -}}
{{- end -}}

{{/*
The seconds of a duration such as 1h30m.
*/}}
{{- define "prefixwatch.rules.seconds" -}}
{{- $units := dict "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[smhdw]" . -1 -}}
  {{- $sum = add $sum (mul (regexFind "[0-9]+" .) (get $units (regexFind "[a-z]" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
