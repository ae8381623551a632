{{/* Rules that network policies share. */}}
{{- define "scanner-operator.toDNS" -}}
- to:
  - namespaceSelector:
      {{- with .Values.networkPolicy.dns.namespaceLabels }}
      matchLabels:
        {{- toYaml . | nindent 8 }}
      {{- else }} {}
      {{- end }}
  ports:
  {{- range .Values.networkPolicy.dns.ports }}
  - {port: {{ . }}, protocol: UDP}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
{{- end }}

{{- define "scanner-operator.toKubernetesAPI" -}}
{{- with .Values.networkPolicy.kubernetesAPI }}
- ports:
  {{- range .ports }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
  {{- with .peers }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Private, shared and link-local addresses are left out. */}}
{{- define "scanner-operator.toInternet" -}}
{{- with .Values.networkPolicy }}
- to:
  - ipBlock:
      cidr: 0.0.0.0/0
      {{- with .privateNetworks }}
      except:
      {{- toYaml . | nindent 6 }}
      {{- end }}
  - ipBlock:
      cidr: ::/0
      {{- with .privateNetworks6 }}
      except:
      {{- toYaml . | nindent 6 }}
      {{- end }}
  ports:
  - {port: 443, protocol: TCP}
{{- end }}
{{- end }}

{{/* (list PEERS PORT): from these, or from all pods. */}}
{{- define "scanner-operator.from" -}}
- from:
  {{- with index . 0 }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  - namespaceSelector: {}
  {{- end }}
  ports:
  - {port: {{ index . 1 }}, protocol: TCP}
{{- end }}
