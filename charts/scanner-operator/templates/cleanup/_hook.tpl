{{/* The clean-up's permissions and Job exist only while it runs. A failed Job is kept for inspection. */}}
{{- define "scanner-operator.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
