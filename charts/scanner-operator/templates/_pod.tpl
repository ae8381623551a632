{{/* The common part of the release's pods: (list . .Values.manager "manager"), where the last is the component if it may have replicas. */}}
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
{{- else }}
{{- if gt (int $pod.replicas) 1 }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "scanner-operator.selector" (index $ 2) | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Replicas and strategy of a component: .Values.manager. A new pod must be ready before an old one of several ends. A single one ends before
the next one starts: of the manager, only one process may write a store in a file, and of the notifier, only one may send. */}}
{{- define "scanner-operator.replicas" -}}
replicas: {{ .replicas }}
strategy:
  {{- if gt (int .replicas) 1 }}
  type: RollingUpdate
  rollingUpdate:
    maxSurge: 1
    maxUnavailable: 0
  {{- else }}
  type: Recreate
  {{- end }}
{{- end }}

{{/* Not empty if the notifier needs a Lease: there are several of them, or several managers whose epochs must survive its restart. */}}
{{- define "scanner-operator.notifierLease" -}}
{{- if or (gt (int .Values.manager.replicas) 1) (gt (int .Values.notifier.replicas) 1) }}true{{ end }}
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
