{{/* Rules that several network policies use. */}}
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

{{/* The Kubernetes API and the internet. A policy cannot name the API servers, whose addresses are often private. Without peers for
them, all addresses are open at these ports, except for those of the node and of the cloud's metadata service. */}}
{{- define "scanner-operator.toKubernetesAPI" -}}
{{- with .Values.networkPolicy }}
{{- include "scanner-operator.toServer" .kubernetesAPI }}
{{- if or .kubernetesAPI.peers (not (has "443" (toStrings .kubernetesAPI.ports))) }}
{{ include "scanner-operator.toInternet" $ }}
{{- end }}
{{- end }}
{{- end }}

{{- define "scanner-operator.toStoreServer" -}}
{{- include "scanner-operator.toServer" .Values.networkPolicy.storeServer }}
{{- end }}

{{/* (dict "peers" PEERS "ports" PORTS): to the given peers, or to all addresses that are not link-local. */}}
{{- define "scanner-operator.toServer" -}}
- to:
  {{- with .peers }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  - ipBlock:
      cidr: 0.0.0.0/0
      except: [127.0.0.0/8, 169.254.0.0/16]
  - ipBlock:
      cidr: ::/0
      except: ["::1/128", "fe80::/10"]
  {{- end }}
  ports:
  {{- range .ports }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
{{- end }}

{{/* Private, shared and link-local addresses are excluded. */}}
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

{{/* (list PEERS PORT): from the given peers, or from all pods. */}}
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
