{{- define "paceline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "paceline.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "paceline.selector" -}}
app.kubernetes.io/name: {{ include "paceline.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "paceline.labels" -}}
{{ include "paceline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "paceline.tokens" -}}
{{- .Values.tokens.existingSecret | default (printf "%s-tokens" (include "paceline.fullname" .)) -}}
{{- end -}}

{{- define "paceline.databaseSecret" -}}
{{- .Values.database.existingSecret | default (printf "%s-database" (include "paceline.fullname" .)) -}}
{{- end -}}

{{/* The role that dashboards read with: the bundled database makes its own. */}}
{{- define "paceline.reader" -}}
{{- .Values.database.reader | default (ternary "paceline_reader" "" .Values.postgresql.enabled) -}}
{{- end -}}

{{/* What is kept of a secret that an earlier install made, or something new. */}}
{{- define "paceline.kept" -}}
{{- $old := (lookup "v1" "Secret" .root.Release.Namespace .secret).data | default dict -}}
{{- if hasKey $old .key -}}
{{- index $old .key | b64dec -}}
{{- else -}}
{{- randAlphaNum 48 -}}
{{- end -}}
{{- end -}}

{{- define "paceline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "paceline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* The pod of a collector, for a role: all, gateway or analyzer. */}}
{{- define "paceline.pod" -}}
{{- $root := .root -}}
{{- $v := .root.Values -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne $v.tls.existingSecret "") -}}
{{- $creds := ternary $v.bus.existingSecret "" (eq $v.mode "scaled") -}}
metadata:
  labels:
    {{- include "paceline.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- with $v.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "paceline.fullname" $root }}
  automountServiceAccountToken: {{ eq $v.nodeActions.mode "execute" }}
  terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
  securityContext: {{- include "paceline.podSecurity" $root | nindent 4 }}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: collector
      image: "{{ $v.image.repository }}:{{ $v.image.tag | default $root.Chart.AppVersion }}"
      imagePullPolicy: {{ $v.image.pullPolicy }}
      {{- if ne .role "all" }}
      args: [serve, --role, {{ .role }}]
      {{- end }}
      securityContext: {{- include "paceline.containerSecurity" $root | nindent 8 }}
      ports:
        - { name: http, containerPort: 8750 }
      env:
        - name: POD_IP
          valueFrom: { fieldRef: { fieldPath: status.podIP } }
        - name: PACELINE_TOKEN
          valueFrom: { secretKeyRef: { name: {{ include "paceline.tokens" $root }}, key: admin-token } }
        - name: PACELINE_SERVE_INGEST_TOKEN
          valueFrom: { secretKeyRef: { name: {{ include "paceline.tokens" $root }}, key: ingest-token } }
        - name: PACELINE_SERVE_READ_TOKEN
          valueFrom: { secretKeyRef: { name: {{ include "paceline.tokens" $root }}, key: read-token } }
        - name: PACELINE_SERVE_DATABASE
          valueFrom: { secretKeyRef: { name: {{ include "paceline.databaseSecret" $root }}, key: database-url } }
        {{- with include "paceline.reader" $root }}
        - { name: PACELINE_SERVE_DATABASE_READER, value: {{ . | quote }} }
        {{- end }}
        # Prometheus asks pods by their address, everybody else by the name of the service.
        {{- $name := include "paceline.fullname" $root }}
        {{- $hosts := list $name (printf "%s.%s" $name $root.Release.Namespace) (printf "%s.%s.svc" $name $root.Release.Namespace) (printf "%s.%s.svc.cluster.local" $name $root.Release.Namespace) "$(POD_IP)" "[$(POD_IP)]" }}
        {{- if $v.ingress.enabled }}
        {{- $hosts = append $hosts $v.ingress.host }}
        - { name: PACELINE_SERVE_PUBLIC_URL, value: {{ printf "%s://%s" (ternary "https" "http" (ne $v.ingress.tlsSecret "")) $v.ingress.host | quote }} }
        - { name: PACELINE_SERVE_TRUSTED_PROXIES, value: {{ $v.ingress.trustedProxies | toJson | quote }} }
        {{- end }}
        - { name: PACELINE_SERVE_ALLOWED_HOSTS, value: {{ $hosts | toJson | quote }} }
        - { name: PACELINE_SERVE_LOG_FORMAT, value: json }
        {{- if eq $v.mode "scaled" }}
        - { name: PACELINE_SERVE_BUS, value: {{ required "mode scaled needs bus.url, for example nats://nats:4222 (docs/scale-out.md)" $v.bus.url | quote }} }
        - { name: PACELINE_SERVE_BUS_REPLICAS, value: {{ $v.bus.replicas | quote }} }
        {{- if $creds }}
        - { name: PACELINE_SERVE_BUS_CREDENTIALS, value: /etc/paceline/bus/{{ .role }}.creds }
        {{- end }}
        {{- end }}
        {{- if $v.tls.existingSecret }}
        - { name: PACELINE_SERVE_TLS_CERT, value: /etc/paceline/tls/tls.crt }
        - { name: PACELINE_SERVE_TLS_KEY, value: /etc/paceline/tls/tls.key }
        {{- end }}
        {{- if ne $v.nodeActions.mode "propose" }}
        - { name: PACELINE_SERVE_ACTIONS_MODE, value: {{ $v.nodeActions.mode }} }
        - { name: PACELINE_SERVE_ACTIONS_ALLOW, value: {{ $v.nodeActions.allow | toJson | quote }} }
        - { name: PACELINE_SERVE_ACTIONS_NODES, value: {{ $v.nodeActions.nodes | toJson | quote }} }
        {{- end }}
        {{- range $key, $value := $v.env }}
        - { name: {{ $key }}, value: {{ $value | quote }} }
        {{- end }}
      {{- with $v.envFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      # The start migrates the schema before it listens; a large table may take a while.
      startupProbe:
        httpGet: &alive { path: /healthz, port: http, scheme: {{ $scheme }}, httpHeaders: [{ name: Host, value: localhost }] }
        periodSeconds: 5
        failureThreshold: 360
      livenessProbe:
        httpGet: *alive
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: { path: /readyz, port: http, scheme: {{ $scheme }}, httpHeaders: [{ name: Host, value: localhost }] }
        periodSeconds: 5
        timeoutSeconds: 3
      resources: {{- toYaml $v.resources | nindent 8 }}
      volumeMounts:
        - { name: state, mountPath: /var/lib/paceline }
        - { name: tmp, mountPath: /tmp }
        {{- if $v.tls.existingSecret }}
        - { name: tls, mountPath: /etc/paceline/tls, readOnly: true }
        {{- end }}
        {{- if $creds }}
        - { name: bus, mountPath: /etc/paceline/bus, readOnly: true }
        {{- end }}
  volumes:
    - { name: state, emptyDir: {} }
    - { name: tmp, emptyDir: {} }
    {{- with $v.tls.existingSecret }}
    - name: tls
      secret: { secretName: {{ . }}, defaultMode: 0440 }
    {{- end }}
    {{- with $creds }}
    - name: bus
      secret: { secretName: {{ . }}, defaultMode: 0440, items: [{ key: {{ $.role }}.creds, path: {{ $.role }}.creds }] }
    {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $v.affinity }}
  affinity: {{- toYaml $v.affinity | nindent 4 }}
  {{- else if ne .role "all" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "paceline.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ .component }}
  {{- end }}
{{- end -}}
