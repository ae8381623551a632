{{/* Rights and Job of the clean-up are there while it runs only. A Job that failed stays, to be looked at. */}}
{{- define "scanner-operator.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
