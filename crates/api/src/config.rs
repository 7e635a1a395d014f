//! The configuration file of the controller: `config.trainer.kubeflow.org/v1alpha1`, kind `Configuration`.
//!
//! The file has upstream's format, so that an installation keeps its ConfigMap. Decoding is strict: an unknown member is an error.
//! [`Configuration::default`] applies without a file, and fills members that a file leaves out.

use crate::field::{Error, ErrorList, Path};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The only `apiVersion` of the file.
pub const API_VERSION: &str = "config.trainer.kubeflow.org/v1alpha1";
/// The only `kind` of the file.
pub const KIND: &str = "Configuration";

/// The feature gate that lets training code report its progress (alpha, off by default).
pub const GATE_TRAINJOB_STATUS: &str = "TrainJobStatus";

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// Where the admission webhooks listen.
    #[serde(default)]
    pub webhook: Webhook,
    /// Absent: no leader election, for a single replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_election: Option<LeaderElection>,
    /// Where metrics are served.
    #[serde(default)]
    pub metrics: Metrics,
    /// Where probes are answered.
    #[serde(default)]
    pub health: Health,
    /// How reconcilers run.
    #[serde(default)]
    pub controller: Controller,
    /// Certificates of the webhooks.
    #[serde(default)]
    pub cert_management: CertManagement,
    /// How fast the controllers may talk to the API server.
    #[serde(default = "ClientConnection::controller")]
    pub client_connection: ClientConnection,
    /// The server that training code reports its progress to.
    #[serde(default)]
    pub status_server: StatusServer,
    /// Feature gates by name; see [`GATE_TRAINJOB_STATUS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// TLS of every server.
    #[serde(default)]
    pub tls: Tls,
    /// MPIJobs, where they are worked on. Upstream has flags of mpi-operator for it.
    #[serde(default, skip_serializing_if = "Mpi::is_default")]
    pub mpi: Mpi,
}

/// How MPIJobs are worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mpi {
    /// Who schedules gangs: volcano, or the name of a scheduler with scheduler-plugins' coscheduling. Empty: nobody.
    pub gang_scheduling: String,
    /// The cluster's DNS domain, where hosts are to be written with it. Empty: they are written without.
    pub cluster_domain: String,
    /// The image with this program in which launchers wait for their workers (`trainyard.dev/wait-for-workers: reachable`).
    /// Empty: the one that the operator's own pod runs.
    pub image: String,
    /// Namespace of the Lease mpi-operator, by which this operator and upstream's are never at work together. Default:
    /// mpi-operator.
    pub lock_namespace: String,
    /// What children have beyond upstream's. Default: upstream, which is nothing.
    pub profile: MpiProfile,
}

/// What MPIJobs' children have beyond upstream's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpiProfile {
    /// Nothing.
    #[default]
    Upstream,
    /// Pods without a token for the API and without a mesh's proxy, under the restricted Pod Security standard; a
    /// NetworkPolicy that lets nobody else in; launchers that wait until their workers can be reached. A job's templates and
    /// annotations may say otherwise, and its `spec` is never changed.
    OpenshiftAi,
}

impl MpiProfile {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Upstream, Self::OpenshiftAi];

    /// As the configuration and flags write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::OpenshiftAi => "openshift-ai",
        }
    }
}

impl Default for Mpi {
    fn default() -> Self {
        Self {
            gang_scheduling: String::new(),
            cluster_domain: String::new(),
            image: String::new(),
            lock_namespace: "mpi-operator".to_owned(),
            profile: MpiProfile::Upstream,
        }
    }
}

impl Mpi {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Where the admission webhooks listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhook {
    /// TCP port, 1 to 65535. Default: 9443.
    pub port: i32,
    /// Address to listen on. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Default for Webhook {
    fn default() -> Self {
        Self { port: 9443, host: None }
    }
}

/// Leader election over a Lease. Durations are written as Go does (`15s`, `1m30s`).
// Q-09 (fixed): upstream fails where one of the durations is missing; these are the defaults that it documents elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether to elect a leader. Default: true where the section is there.
    pub leader_elect: bool,
    /// How long a leader that is not heard of counts. Default: 15s.
    pub lease_duration: String,
    /// How long a leader tries to renew before it gives up. Default: 10s.
    pub renew_deadline: String,
    /// How long to wait between tries. Default: 2s.
    pub retry_period: String,
    /// Kind of the lock. Default: leases, the only one there is.
    pub resource_lock: String,
    /// Name of the Lease. Default: trainer.kubeflow.org.
    pub resource_name: String,
    /// Namespace of the Lease; empty: the controller's own.
    pub resource_namespace: String,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: "15s".to_owned(),
            renew_deadline: "10s".to_owned(),
            retry_period: "2s".to_owned(),
            resource_lock: "leases".to_owned(),
            resource_name: "trainer.kubeflow.org".to_owned(),
            resource_namespace: String::new(),
        }
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// `host:port`; `0` for nowhere. Default: `:8443`.
    pub bind_address: String,
    /// Whether over TLS. Default: true.
    pub secure_serving: bool,
    /// Who may read them.
    pub auth: MetricsAuth,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { bind_address: ":8443".to_owned(), secure_serving: true, auth: MetricsAuth::default() }
    }
}

/// Who may read metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsAuth {
    /// Whether a reader needs the API server's permission. Default: false.
    pub enabled: bool,
}

/// Where probes are answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Health {
    /// `host:port`. Default: `:8081`.
    pub health_probe_bind_address: String,
    /// Path of the readiness probe. Default: readyz.
    pub readiness_endpoint_name: String,
    /// Path of the liveness probe. Default: healthz.
    pub liveness_endpoint_name: String,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            health_probe_bind_address: ":8081".to_owned(),
            readiness_endpoint_name: "readyz".to_owned(),
            liveness_endpoint_name: "healthz".to_owned(),
        }
    }
}

/// How reconcilers run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Controller {
    /// Objects reconciled at once, by `<Kind>.<group>`; each at least 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub group_kind_concurrency: BTreeMap<String, i32>,
}

/// Certificates of the webhooks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CertManagement {
    /// Whether the controller makes and renews them itself. Default: true.
    pub enable: bool,
    /// The Service in front of the webhooks. Default: kubeflow-trainer-controller-manager.
    pub webhook_service_name: String,
    /// The Secret that holds them. Default: kubeflow-trainer-webhook-cert.
    pub webhook_secret_name: String,
}

impl Default for CertManagement {
    fn default() -> Self {
        Self {
            enable: true,
            webhook_service_name: "kubeflow-trainer-controller-manager".to_owned(),
            webhook_secret_name: "kubeflow-trainer-webhook-cert".to_owned(),
        }
    }
}

/// How fast a client may talk to the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClientConnection {
    /// Requests a second, in the long run; at least 0. Default: 50.
    pub qps: f32,
    /// Requests at once; at least 0. Default: 100.
    pub burst: i32,
}

impl ClientConnection {
    fn controller() -> Self {
        Self { qps: 50.0, burst: 100 }
    }
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self::controller()
    }
}

/// The server that training code reports its progress to, and its own client of the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StatusServer {
    /// TCP port, 1 to 65535. Default: 10443.
    pub port: i32,
    /// Writes of statuses a second, in the long run; at least 0, which is no limit. Default: what the server paces itself to
    /// (upstream: 5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qps: Option<f32>,
    /// Writes at once; at least 0. Default: 10, where `qps` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<i32>,
}

impl StatusServer {
    /// The limit that was asked for: writes a second, and at once.
    pub fn limit(&self) -> Option<(f64, f64)> {
        let qps = self.qps.filter(|qps| *qps > 0.0)?;
        Some((qps.into(), self.burst.unwrap_or(10).into()))
    }
}

impl Default for StatusServer {
    fn default() -> Self {
        Self { port: 10443, qps: None, burst: None }
    }
}

/// TLS of every server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tls {
    /// Least version: 1.0 to 1.3. Unknown ones are reported and ignored. Default: the library's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<String>,
    /// Cipher suites by their IANA names. Unknown ones are reported and ignored. Default: the library's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cipher_suites: Vec<String>,
    /// Protocols to offer, best first. Default: http/1.1 alone.
    pub next_protos: Vec<String>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { min_version: None, cipher_suites: Vec::new(), next_protos: vec!["http/1.1".to_owned()] }
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            webhook: Webhook::default(),
            leader_election: None,
            metrics: Metrics::default(),
            health: Health::default(),
            controller: Controller::default(),
            cert_management: CertManagement::default(),
            client_connection: ClientConnection::default(),
            status_server: StatusServer::default(),
            feature_gates: BTreeMap::new(),
            tls: Tls::default(),
            mpi: Mpi::default(),
        }
    }
}

impl Configuration {
    /// Whether a feature gate is on.
    pub fn is_enabled(&self, gate: &str) -> bool {
        self.feature_gates.get(gate).copied().unwrap_or(false)
    }

    /// Everything that is wrong with the values, in upstream's words.
    pub fn validate(&self) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut check = |ok: bool, section: &str, member: &str, value: serde_json::Value, detail: &str| {
            if !ok {
                errors.push(Error::invalid(&Path::new(section).child(member), value, detail));
            }
        };
        const PORT: &str = "must be between 1 and 65535";
        const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
        let is_port = |port: i32| (1..=65535).contains(&port);
        check(is_port(self.webhook.port), "webhook", "port", self.webhook.port.into(), PORT);
        for (kind, workers) in &self.controller.group_kind_concurrency {
            let member = format!("groupKindConcurrency[{kind}]");
            check(*workers >= 1, "controller", &member, (*workers).into(), "must be greater than 0");
        }
        let client = &self.client_connection;
        check(client.qps >= 0.0, "clientConnection", "qps", client.qps.into(), NOT_NEGATIVE);
        check(client.burst >= 0, "clientConnection", "burst", client.burst.into(), NOT_NEGATIVE);
        let server = &self.status_server;
        check(is_port(server.port), "statusServer", "port", server.port.into(), PORT);
        check(server.qps.is_none_or(|qps| qps >= 0.0), "statusServer", "qps", server.qps.into(), NOT_NEGATIVE);
        check(server.burst.is_none_or(|burst| burst >= 0), "statusServer", "burst", server.burst.into(), NOT_NEGATIVE);
        if self.api_version != API_VERSION || self.kind != KIND {
            let detail = format!("must be {API_VERSION}, Kind={KIND}");
            errors.push(Error::invalid(&Path::new("kind"), format!("{}/{}", self.api_version, self.kind), detail));
        }
        for gate in self.feature_gates.keys().filter(|gate| *gate != GATE_TRAINJOB_STATUS) {
            let field = Path::new("featureGates").key(gate);
            errors.push(Error::not_supported(&field, gate.as_str(), &[GATE_TRAINJOB_STATUS]));
        }
        errors
    }
}

/// Seconds of a duration as Go writes it: `15s`, `1m30s`, `1.5h`, `100ms`; `None` for anything else.
pub fn duration_secs(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut total = 0.0;
    if rest == "0" {
        return Some(0.0);
    }
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..number].parse().ok()?;
        rest = &rest[number..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += value
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse(mut value: Value) -> Result<Configuration, serde_json::Error> {
        value["apiVersion"] = json!(API_VERSION);
        value["kind"] = json!(KIND);
        serde_json::from_value(value)
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(parse(json!({})).unwrap(), Configuration::default());
        assert!(Configuration::default().validate().is_empty());
        let partial = parse(json!({"leaderElection": {"leaseDuration": "1m30s"}, "webhook": {"host": "::1"}})).unwrap();
        assert_eq!(partial.leader_election.unwrap().retry_period, "2s");
        assert_eq!(partial.webhook.port, 9443);
    }

    #[test]
    fn unknown_members_and_missing_identity_are_errors() {
        assert!(parse(json!({"webhok": {}})).unwrap_err().to_string().contains("webhok"));
        assert!(serde_json::from_value::<Configuration>(json!({})).is_err());
    }

    #[test]
    fn values_are_checked_in_upstreams_words() {
        let cases = [
            (json!({"webhook": {"port": 0}}), "webhook.port: Invalid value: 0: must be between 1 and 65535"),
            (
                json!({"statusServer": {"port": 70000}}),
                "statusServer.port: Invalid value: 70000: must be between 1 and 65535",
            ),
            (
                json!({"clientConnection": {"burst": -1}}),
                "clientConnection.burst: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"controller": {"groupKindConcurrency": {"TrainJob.x": 0}}}),
                "controller.groupKindConcurrency[TrainJob.x]: Invalid value: 0: must be greater than 0",
            ),
            (
                json!({"featureGates": {"Nope": true}}),
                "featureGates[Nope]: Unsupported value: \"Nope\": supported values: \"TrainJobStatus\"",
            ),
        ];
        for (file, expected) in cases {
            let errors = parse(file).unwrap().validate();
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn a_profile_is_upstream_s_or_openshift_ai_s() {
        for profile in MpiProfile::ALL {
            let file = parse(json!({"mpi": {"profile": profile.as_str()}})).unwrap();
            assert_eq!(file.mpi, Mpi { profile, ..Mpi::default() });
        }
        assert_eq!(Mpi::default().profile, MpiProfile::Upstream);
        let error = parse(json!({"mpi": {"profile": "openshift"}})).unwrap_err().to_string();
        assert!(error.contains("`openshift`") && error.contains("`openshift-ai`"), "{error}");
    }

    #[test]
    fn durations_are_gos() {
        let cases = [
            ("15s", Some(15.0)),
            ("1m30s", Some(90.0)),
            ("1.5h", Some(5400.0)),
            ("0", Some(0.0)),
            ("5", None),
            ("", None),
        ];
        for (text, secs) in cases {
            assert_eq!(duration_secs(text), secs, "{text}");
        }
    }
}
