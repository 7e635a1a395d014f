{{/* The name of the operator's objects, as upstream's: an installation over Kubeflow Trainer replaces it. */}}
{{- define "trainyard.name" -}}kubeflow-trainer-controller-manager{{- end }}

{{/* Labels of all objects. */}}
{{- define "trainyard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
An object of manifests/, by kind and name, at home in this release: (list $ KIND NAME), or in a folder: (list $ KIND NAME FOLDER).
`cargo xtask chart` copies the objects into files/.
*/}}
{{- define "trainyard.object" -}}
{{- $root := index . 0 }}
{{- $object := $root.Files.Get (printf "files/%s%s.%s.yaml" (join "" (slice . 3)) (index . 1) (index . 2)) | fromYaml }}
{{- $own := include "trainyard.labels" $root | fromYaml }}
{{- $_ := set $object.metadata "labels" (merge $own (default dict $object.metadata.labels)) }}
{{- if not (has $object.kind (list "ClusterRole" "ClusterRoleBinding" "CustomResourceDefinition" "MutatingWebhookConfiguration" "ValidatingWebhookConfiguration" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding")) }}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace }}
{{- end }}
{{- range $object.subjects }}
{{- if eq .kind "ServiceAccount" }}{{ $_ := set . "namespace" $root.Release.Namespace }}{{ end }}
{{- end }}
{{- toYaml $object }}
{{- end }}

{{/* The configuration file: that of manifests/, with manager.config over it. */}}
{{- define "trainyard.configuration" -}}
{{- $shipped := .Files.Get "files/ConfigMap.kubeflow-trainer-config.yaml" | fromYaml }}
{{- $file := index $shipped.data "controller_manager_config.yaml" | fromYaml }}
{{- toYaml (mergeOverwrite $file (deepCopy .Values.manager.config)) }}
{{- end }}

{{/* The port of an address as Go writes it; nothing where it is not served: (list ADDRESS DEFAULT). */}}
{{- define "trainyard.port" -}}
{{- $address := default (index . 1) (index . 0) | toString }}
{{- if ne $address "0" }}{{ regexFind "[0-9]+$" $address }}{{ end }}
{{- end }}

{{/* The controllers to run beside Trainer's. */}}
{{- define "trainyard.controllers" -}}
{{- if .Values.optimizationJobs.enabled }},optimizationjob{{ end }}{{ if .Values.mpiJobs.enabled }},mpijob{{ end }}
{{- end }}

{{/* Built-in runtimes to install, with commas between. */}}
{{- define "trainyard.runtimes" -}}
{{- if not .Values.namespaced }}{{ join "," .Values.runtimes.install }}{{ end }}
{{- end }}

{{- define "trainyard.image" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
