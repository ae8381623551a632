{{/* Labels of every object. */}}
{{- define "scanner-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: scanner-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of a component: (list . "manager"). They are part of the API between the operator's parts (Services,
policies, documentation) and therefore the same in every release. */}}
{{- define "scanner-operator.selector" -}}
app.kubernetes.io/name: scanner-operator
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* The reference of an image: (list . "manager"). */}}
{{- define "scanner-operator.image" -}}
{{- $root := index . 0 }}
{{- $all := $root.Values.image }}
{{- $image := get $all (index . 1) }}
{{- if $image.digest }}
{{- printf "%s/%s@%s" $all.registry $image.repository $image.digest }}
{{- else }}
{{- printf "%s/%s:%s" $all.registry $image.repository (default $root.Chart.AppVersion $all.tag) }}
{{- end }}
{{- end }}

{{/* Names of objects that users may replace by their own. */}}
{{- define "scanner-operator.storeClaim" -}}
{{- default "scanner-operator-store" .Values.store.existingClaim }}
{{- end }}

{{/* The part of the operator's configuration that is about a store on a server. Its data source name is in a file at the default path. */}}
{{- define "scanner-operator.storeConfig" -}}
{{- if .Values.config.store }}{{ fail "config.store: set the value store instead, which also mounts the Secrets" }}{{ end -}}
{{- with .Values.store }}
{{- if ne .type "SQLite" -}}
{{- if not .dsnSecretRef.name }}{{ fail (printf "store.dsnSecretRef.name: name the Secret with the data source name of the %s server" .type) }}{{ end -}}
store:
  type: {{ .type }}
  {{- with .maxConnections }}
  maxConnections: {{ . }}
  {{- end }}
  {{- if .caSecretRef.name }}
  tls:
    caFile: /etc/scanner-operator/store/ca.crt
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The part of the operator's configuration that is about the web UI: what differs from the operator's defaults. */}}
{{- define "scanner-operator.uiConfig" -}}
{{- if .Values.config.ui }}{{ fail "config.ui: set the value ui instead, which also mounts the certificate's Secret" }}{{ end -}}
{{- with .Values.ui }}
{{- if and .url (ne (trimSuffix "/" (urlParse .url).path) .basePath) }}{{ fail (printf "ui.url: must end with ui.basePath %q" .basePath) }}{{ end -}}
{{- if not .enabled }}
enabled: false
{{- end }}
{{- with .url }}
url: {{ . | quote }}
{{- end }}
{{- with .basePath }}
basePath: {{ . | quote }}
{{- end }}
{{- if .tlsSecretRef.name }}
tls:
  certFile: /etc/scanner-operator/ui-tls/tls.crt
  keyFile: /etc/scanner-operator/ui-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "scanner-operator.trust" -}}
{{- if .Values.notifier.trust.certificates }}scanner-operator-notifier-trust{{ else }}{{ .Values.notifier.trust.configMap }}{{ end }}
{{- end }}
