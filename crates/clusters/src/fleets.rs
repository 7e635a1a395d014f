//! Services and pools through the API: submits versions of them, and reads how they are.

use crate::{Sky, SubmitError};
use api::sky::{FleetSpec, FleetStatus, JobFile, UpdateMode};
use client::ClientError;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use managed::fleet::FleetKind;
use managed::fleet::submitted::{balancer_name, headers_key, name_of, object, secret};
use managed::job::submitted::config_map;
use serde_json::{Map, Value, json};

/// Why a version was not submitted.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// It is there already.
    #[error("it exists")]
    Exists,
    /// It is not there.
    #[error("it does not exist")]
    Missing,
    /// It is being ended.
    #[error("it is being ended")]
    Ending,
}

impl From<kube::Error> for FleetError {
    fn from(error: kube::Error) -> Self {
        Self::Submit(error.into())
    }
}

impl From<serde_json::Error> for FleetError {
    fn from(error: serde_json::Error) -> Self {
        Self::Submit(error.into())
    }
}

/// A service or a pool as it was read.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub object: DynamicObject,
    pub spec: FleetSpec,
    pub status: FleetStatus,
}

impl Fleet {
    /// Reads an object; `None` if it is not one that this program can read.
    pub fn of(object: &DynamicObject) -> Option<Self> {
        let spec = serde_json::from_value(object.data["spec"].clone()).ok()?;
        let status = match object.data.get("status") {
            Some(status) => serde_json::from_value(status.clone()).ok()?,
            None => FleetStatus::default(),
        };
        Some(Self { object: object.clone(), spec, status })
    }

    /// Whether it is being ended.
    pub fn is_ending(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

/// What is secret of a version.
#[derive(Clone, Debug, Default)]
pub struct FleetSecrets {
    /// Headers of the probe, as JSON.
    pub headers: Option<String>,
    /// Certificate and key of the load balancer, PEM.
    pub tls: Option<(String, String)>,
}

impl Sky {
    /// The service or the pool that a user calls by this name.
    pub async fn fleet(&self, kind: FleetKind, shown: &str) -> Result<Option<Fleet>, ClientError> {
        let found = self.fleets(kind).get_opt(&name_of(shown)).await?;
        Ok(found.as_ref().and_then(Fleet::of))
    }

    /// All of them, by name.
    pub async fn all_fleets(&self, kind: FleetKind) -> Result<Vec<Fleet>, ClientError> {
        let list = self.fleets(kind).list(&ListParams::default()).await?;
        let mut all: Vec<Fleet> = list.iter().filter_map(Fleet::of).collect();
        all.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(all)
    }

    /// Creates a service or a pool. `spec` has neither version nor submission.
    ///
    /// # Errors
    /// It is there already, or the API refuses it.
    pub async fn create_fleet(
        &self,
        kind: FleetKind,
        file: &JobFile,
        spec: FleetSpec,
        secrets: FleetSecrets,
    ) -> Result<(), FleetError> {
        let submission = self.submission(file).await?;
        let spec = FleetSpec { version: 1, submission, ..spec };
        let made: DynamicObject = serde_json::from_value(object(kind, &spec))?;
        let made = match self.fleets(kind).create(&PostParams::default(), &made).await {
            Err(kube::Error::Api(status)) if status.code == 409 => return Err(FleetError::Exists),
            made => made?,
        };
        self.keep_secrets(&spec.name, 1, secrets, &made).await
    }

    /// Submits a newer version of a service or a pool, and returns its number.
    ///
    /// # Errors
    /// It is not there, is being ended, or the API refuses the version.
    pub async fn update_fleet(
        &self,
        kind: FleetKind,
        file: &JobFile,
        spec: FleetSpec,
        mode: UpdateMode,
        secrets: FleetSecrets,
    ) -> Result<u32, FleetError> {
        let submission = self.submission(file).await?;
        loop {
            let held = self.fleet(kind, &spec.name).await.map_err(SubmitError::from)?.ok_or(FleetError::Missing)?;
            if held.is_ending() {
                return Err(FleetError::Ending);
            }
            let version = held.spec.version.saturating_add(1);
            self.keep_secrets(&spec.name, version, secrets.clone(), &held.object).await?;
            let mut patch = json!({
                "metadata": {"resourceVersion": held.object.metadata.resource_version},
                "spec": {
                    "version": version, "submission": submission, "mode": mode, "user": spec.user, "command": spec.command,
                },
            });
            if !spec.listen.is_empty() {
                patch["spec"]["listen"] = json!(spec.listen);
            }
            let name = name_of(&spec.name);
            match self.fleets(kind).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status)) if status.code == 404 => return Err(FleetError::Missing),
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(version),
            }
        }
    }

    /// Asks for the end of a service or a pool; `false`: it is gone.
    ///
    /// # Errors
    /// The API refuses it, or does not answer.
    pub async fn delete_fleet(&self, kind: FleetKind, shown: &str) -> Result<bool, ClientError> {
        match self.fleets(kind).delete(&name_of(shown), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(true),
        }
    }

    /// Creates the ConfigMap of a version, and gives it the Secret with the task's variables. Returns its name.
    async fn submission(&self, file: &JobFile) -> Result<String, FleetError> {
        let made: DynamicObject = serde_json::from_value(config_map(file)?)?;
        let held = self.config_maps().create(&PostParams::default(), &made).await?;
        self.adopt_secrets(file, &held).await?;
        Ok(held.metadata.name.unwrap_or_default())
    }

    /// Adds what is secret of a version to the Secret of the load balancer, which lives as long as the service.
    async fn keep_secrets(
        &self,
        shown: &str,
        version: u32,
        secrets: FleetSecrets,
        owner: &DynamicObject,
    ) -> Result<(), FleetError> {
        let mut data = Map::new();
        if let Some(headers) = secrets.headers {
            data.insert(headers_key(version), headers.into());
        }
        if let Some((certificate, key)) = secrets.tls {
            data.insert("tls.crt".to_owned(), certificate.into());
            data.insert("tls.key".to_owned(), key.into());
        }
        if data.is_empty() {
            return Ok(());
        }
        let name = balancer_name(shown);
        let patch = Patch::Merge(json!({"stringData": Value::Object(data.clone())}));
        match self.secrets().patch(&name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let mut made: DynamicObject = serde_json::from_value(secret(shown, data))?;
                let kind = FleetKind::Service.gvk().kind;
                let owner = json!([{
                    "apiVersion": api::sky::API_VERSION, "kind": kind, "name": owner.metadata.name,
                    "uid": owner.metadata.uid,
                }]);
                made.metadata.owner_references = Some(serde_json::from_value(owner)?);
                self.secrets().create(&PostParams::default(), &made).await?;
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }
}
