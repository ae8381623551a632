{{/* The common part of the release's pods: (list . .Values.manager). */}}
{{- define "scanner-operator.scheduling" -}}
{{- $root := index . 0 }}
{{- $pod := index . 1 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The restricted Pod Security Standard, for pods and containers. */}}
{{- define "scanner-operator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "scanner-operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The proxy, as environment variables. Kubernetes replaces the last name by the address of its API, since clients in the pod connect
to the address instead of a name. */}}
{{- define "scanner-operator.proxy" -}}
{{- with .Values.proxy }}
{{- if or .httpProxy .httpsProxy }}
{{- with .httpProxy }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .httpsProxy }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
- name: NO_PROXY
  value: {{ concat .noProxy (list "localhost" "127.0.0.1" ".svc" ".cluster.local" "$(KUBERNETES_SERVICE_HOST)") | join "," | quote }}
{{- end }}
{{- end }}
{{- end }}
