//! Keeps the certificate valid: in the Secret, in the servers, and in the webhook configurations that trust it.
//!
//! Every replica does so, leader or not. They agree through the Secret: the first to write it wins, the others read it at
//! their next look.

use crate::cluster::CERTIFICATE_NAME;
use crate::cluster::certificates::{Material, advance};
use crate::cluster::health::{Health, Level};
use crate::cluster::leader::form;
use crate::cluster::registration::{Outcome, Registration};
use crate::cluster::tls::Shown;
use crate::numbers;
use driver::metrics::Registry;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A bundle must have been in the configurations for so many looks before certificates are made by it.
const SETTLE_LOOKS: i32 = 3;
/// An authority is trusted for so many looks after its last certificate was exchanged.
const RETIRE_LOOKS: i32 = 60;

/// The parts of [`Health`] that this tells of.
pub const CERTIFICATE: &str = "webhook-certificate";
/// See [`CERTIFICATE`].
pub const REGISTRATION: &str = "webhook-registration";

/// See the module.
pub struct Rotation {
    pub client: Client,
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// Names for which the certificate must be good.
    pub names: Vec<String>,
    /// Whether to make certificates and register webhooks; else somebody else does, and the Secret is only read.
    pub manage: bool,
    /// Between two looks.
    pub period: Duration,
    pub shown: Arc<Shown>,
    /// Gets the certificate's end.
    pub metrics: Arc<Registry>,
    pub registration: Registration,
    pub health: Arc<Health>,
}

/// What one look remembers for the next.
#[derive(Default)]
struct Memory {
    material: Material,
    /// Whether the configurations have led to us: by URL, they are taken over before that alone.
    claimed: bool,
    /// The bundle that both configurations hold, and since when we know.
    trusted: Option<(String, Timestamp)>,
}

impl Rotation {
    /// Looks now and again until `stop`, after which it writes nothing: what comes next may be somebody else's.
    pub async fn run(self, stop: CancellationToken) {
        let mut memory = Memory::default();
        loop {
            tokio::select! {
                () = self.look(&mut memory) => {}
                () = stop.cancelled() => return,
            }
            // until everything is in place, soon again
            let wait = if self.health.report().0 { self.period } else { self.period.min(Duration::from_millis(500)) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn look(&self, memory: &mut Memory) {
        // read before the Secret: a replica that writes both after this look began is not overwritten
        let registered = if self.manage { Some(self.registration.read().await) } else { None };
        let place = format!("Secret {}/{}", self.namespace, self.secret);
        match self.certificate(memory).await {
            Ok(()) => self.health.set(CERTIFICATE, Level::Works, format!("from {place}")),
            // what is shown already goes on being shown
            Err(error) if memory.material.certificate.is_some() => {
                self.health.set(
                    CERTIFICATE,
                    Level::Lacks,
                    format!("{place} cannot be kept up to date: {}", api::error_chain(&*error)),
                );
            }
            Err(error) => self.health.set(CERTIFICATE, Level::Fails, format!("{place}: {}", api::error_chain(&*error))),
        }
        let Some(registered) = registered else {
            return self.health.set(REGISTRATION, Level::Works, "left to others: certManagement.enable is false");
        };
        if memory.material.certificate.is_none() {
            return;
        }
        let bundle = memory.material.bundle();
        let ensured = match registered {
            Ok(held) => {
                memory.claimed |= held.is_at(&self.registration.place);
                self.registration.ensure(held, &bundle, memory.claimed).await
            }
            Err(error) => Err(error),
        };
        match ensured {
            Ok(Outcome::Trusted) => {
                self.health.set(REGISTRATION, Level::Works, "the API server trusts the certificate");
                if memory.trusted.as_ref().is_none_or(|(known, _)| *known != bundle) {
                    memory.trusted = Some((bundle, Timestamp::now()));
                }
            }
            Ok(Outcome::Raced) => memory.trusted = None,
            Err(error) => {
                memory.trusted = None;
                self.health.set(REGISTRATION, Level::Fails, api::error_chain(&error));
            }
        }
    }

    async fn certificate(&self, memory: &mut Memory) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let collection = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let path = format!("{collection}/{}", self.secret);
        let held = match self.client.request::<Value>(form(Method::GET, &path, None)).await {
            Ok(secret) => Some(secret),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => return Err(error.into()),
        };
        let mut material = held.as_ref().map(Material::read).unwrap_or_default();
        if self.manage {
            if material.bundle().is_empty() {
                material = memory.material.disowned();
            }
            let now = Timestamp::now();
            let period = SignedDuration::try_from(self.period)?;
            let settled = memory.trusted.as_ref().is_some_and(|(bundle, since)| {
                *bundle == material.bundle() && now.duration_since(*since) >= period.saturating_mul(SETTLE_LOOKS)
            });
            let before = material.clone();
            material = advance(material, &self.names, now, settled, period.saturating_mul(RETIRE_LOOKS))?;
            if held.is_none() || material != before {
                let exists = held.is_some();
                let mut secret = held.unwrap_or_else(|| {
                    let metadata = json!({"name": self.secret, "namespace": self.namespace});
                    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"})
                });
                material.write(&mut secret);
                let request = if exists {
                    form(Method::PUT, &path, Some(&secret))
                } else {
                    form(Method::POST, &collection, Some(&secret))
                };
                match self.client.request::<Value>(request).await {
                    Ok(_) => tracing::info!(secret = path, "renewed keys and certificates"),
                    // another replica was faster, and what it wrote counts
                    Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let (Some(certificate), Some(key)) = (&material.certificate, &material.key) else {
            return Err("tls.crt and tls.key are not there yet".into());
        };
        if material.certificate != memory.material.certificate || material.key != memory.material.key {
            self.shown.show(certificate, key)?;
            numbers::note_certificate(&self.metrics, CERTIFICATE_NAME, certificate);
        }
        memory.material = material;
        Ok(())
    }
}
