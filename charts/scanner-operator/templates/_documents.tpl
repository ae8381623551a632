{{/* Renders objects from files/, which are copies of config/: (dict "root" . "text" TEXT). They get the labels and the namespace
of the release, and its ServiceAccounts. */}}
{{- define "scanner-operator.documents" -}}
{{- $root := .root }}
{{- range regexSplit "(?m)^---\\s*$" .text -1 }}
{{- $object := fromYaml . }}
{{- if $object.Error }}{{ fail $object.Error }}{{ end }}
{{- if $object.kind }}
{{- include "scanner-operator.document" (dict "root" $root "object" $object) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "scanner-operator.document" -}}
{{- $object := .object }}
{{- $labels := include "scanner-operator.labels" .root | fromYaml }}
{{- $_ := set $object.metadata "labels" (mergeOverwrite (default dict $object.metadata.labels) $labels) }}
{{- if not (has $object.kind (list "ClusterRole" "ClusterRoleBinding" "CustomResourceDefinition" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding")) }}
{{- $_ := set $object.metadata "namespace" (default .root.Release.Namespace .namespace) }}
{{- end }}
{{- range $subject := default list $object.subjects }}
{{- if eq .kind "ServiceAccount" }}
{{- $_ := set . "namespace" $.root.Release.Namespace }}
{{- with get $.root.Values (trimPrefix "scanner-operator-" .name) }}
{{- $_ := set $subject "name" .serviceAccount.name }}
{{- end }}
{{- end }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
