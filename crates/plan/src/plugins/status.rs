//! TrainJobStatus: what training code needs to report its progress to the status server.
//!
//! Off unless the process has a status server (feature gate `TrainJobStatus`).
//! Source: upstream's `pkg/runtime/framework/plugins/trainjobstatus`.

use super::{Build, BuildError, CaSource, Plugin, Settings, StatusServer, apply};
use crate::info::Info;
use crate::job::Job;
use crate::names::env::{SERVER_CA_CERT, SERVER_TOKEN, SERVER_URL};
use crate::names::{API_VERSION, Ancestor, SUFFIX_TLS_CONFIG};
use crate::upsert;
use api::object::{Gvk, Key, Target};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reconcile::Op;
use serde_json::{Value, json};

const VOLUME: &str = "kubeflow-trainer-token";
const DIR: &str = "/var/run/secrets/kubeflow/trainer";
const TOKEN: &str = "token";
const CA: &str = "ca.crt";
const TOKEN_SECS: i64 = 3600;

/// Active where [`Settings::status_server`] is set.
pub struct TrainJobStatus;

impl Plugin for TrainJobStatus {
    fn name(&self) -> &'static str {
        "TrainJobStatus"
    }

    fn enforce_pod_spec(&self, info: &mut Info, job: &Job, settings: &Settings) -> Result<(), BuildError> {
        let Some(server) = &settings.status_server else { return Ok(()) };
        let Some(set) = info.by_ancestor_mut(Ancestor::Trainer) else { return Ok(()) };
        for container in &mut set.containers {
            upsert::env_value(&mut container.env, SERVER_URL, url(server, job));
            upsert::env_value(&mut container.env, SERVER_CA_CERT, format!("{DIR}/{CA}"));
            upsert::env_value(&mut container.env, SERVER_TOKEN, format!("{DIR}/{TOKEN}"));
            upsert::mount(&mut container.volume_mounts, json!({"name": VOLUME, "mountPath": DIR, "readOnly": true}));
        }
        upsert::volume(&mut set.volumes, volume(job));
        Ok(())
    }

    fn build(&self, cx: &Build<'_>) -> Result<Vec<Op>, BuildError> {
        let Some(server) = &cx.settings.status_server else { return Ok(Vec::new()) };
        let mut map = cx.job.child("v1", "ConfigMap", &tls_config(cx.job));
        map["data"] = json!({CA: authority(cx, &server.ca)?});
        Ok(vec![apply(map)])
    }

    fn reads(&self, _job: &Job, settings: &Settings) -> Vec<Target> {
        match settings.status_server.as_ref().map(|server| &server.ca) {
            Some(CaSource::Secret(key)) => vec![secret(key)],
            Some(CaSource::Inline(_)) | None => Vec::new(),
        }
    }

    fn watches(&self) -> Vec<Gvk> {
        vec![Gvk::new("", "v1", "ConfigMap")]
    }
}

/// The audience that a token must be for, which also is the path below `/apis/`.
pub fn audience(namespace: &str, name: &str) -> String {
    format!("{API_VERSION}/namespaces/{namespace}/trainjobs/{name}/status")
}

fn url(server: &StatusServer, job: &Job) -> String {
    format!("{}/apis/{}", server.base_url, audience(&job.namespace, &job.name))
}

fn tls_config(job: &Job) -> String {
    format!("{}{SUFFIX_TLS_CONFIG}", job.name)
}

fn volume(job: &Job) -> Value {
    json!({"name": VOLUME, "projected": {"sources": [
        {"serviceAccountToken": {
            "audience": audience(&job.namespace, &job.name),
            "expirationSeconds": TOKEN_SECS,
            "path": TOKEN,
        }},
        {"configMap": {"name": tls_config(job), "items": [{"key": CA, "path": CA}]}},
    ]}})
}

fn secret(key: &Key) -> Target {
    Target { gvk: Gvk::new("", "v1", "Secret"), key: key.clone() }
}

/// The certificate authority as PEM text.
fn authority(cx: &Build<'_>, source: &CaSource) -> Result<String, BuildError> {
    let key = match source {
        CaSource::Inline(pem) => return Ok(pem.clone()),
        CaSource::Secret(key) => key,
    };
    let held = cx.view.get(&secret(key)).ok_or_else(|| {
        BuildError::new(format!("failed to look up status server tls secret: Secret {:?} not found", key.name))
    })?;
    let missing = || BuildError::new("failed to find status server ca.crt in tls secret");
    let encoded = held.pointer("/data/ca.crt").and_then(Value::as_str).filter(|t| !t.is_empty()).ok_or_else(missing)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| missing())?;
    String::from_utf8(bytes).map_err(|_| missing())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{child, children, env, job, replicated, runtime};
    use super::*;

    fn settings(ca: CaSource) -> Settings {
        Settings { status_server: Some(StatusServer { base_url: "https://s.ns.svc:10443".to_owned(), ca }) }
    }

    #[test]
    fn only_containers_of_the_trainer_get_it() {
        let mut node = replicated("node", "trainer");
        let containers = &mut node["template"]["spec"]["template"]["spec"]["containers"];
        containers
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "side", "env": [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "mine"}]}));
        node["template"]["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "setup"}]);
        let runtime = runtime(json!({}), &[replicated("dataset-initializer", "dataset-initializer"), node]);
        let ops = children(&job(json!({})), &runtime, &settings(CaSource::Inline("PEM".to_owned())), &[]).unwrap();
        assert_eq!(child(&ops, "ConfigMap").unwrap()["data"], json!({"ca.crt": "PEM"}));
        let jobset = child(&ops, "JobSet").unwrap();
        let pod = |index: usize| {
            jobset.pointer(&format!("/spec/replicatedJobs/{index}/template/spec/template/spec")).unwrap()
        };
        assert!(pod(0).get("volumes").is_none() && pod(0)["containers"][0].get("env").is_none());
        assert!(pod(1)["initContainers"][0].get("env").is_none());
        for container in pod(1)["containers"].as_array().unwrap() {
            assert_eq!(
                env(container["env"].as_array().unwrap()),
                [
                    "KUBEFLOW_TRAINER_SERVER_URL=https://s.ns.svc:10443/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns\
                     /trainjobs/train/status",
                    "KUBEFLOW_TRAINER_SERVER_CA_CERT=/var/run/secrets/kubeflow/trainer/ca.crt",
                    "KUBEFLOW_TRAINER_SERVER_TOKEN=/var/run/secrets/kubeflow/trainer/token",
                ]
            );
        }
    }

    #[test]
    fn the_authority_comes_out_of_a_secret() {
        let runtime = runtime(json!({}), &[replicated("node", "trainer")]);
        let settings = settings(CaSource::Secret(Key::new("sys", "cert")));
        let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cert", "namespace": "sys"}, "data": data});
        let cases = [
            (vec![], Err("failed to look up status server tls secret")),
            (vec![secret(json!({}))], Err("failed to find status server ca.crt in tls secret")),
            (vec![secret(json!({"ca.crt": ""}))], Err("failed to find status server ca.crt in tls secret")),
            (vec![secret(json!({"ca.crt": "UEVN"}))], Ok("PEM")),
        ];
        for (live, expected) in cases {
            let ops = children(&job(json!({})), &runtime, &settings, &live);
            match (ops, expected) {
                (Ok(ops), Ok(pem)) => assert_eq!(child(&ops, "ConfigMap").unwrap()["data"]["ca.crt"], pem),
                (Err(error), Err(start)) => assert!(error.0.starts_with(start), "{error}"),
                (got, expected) => panic!("{got:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn nothing_happens_without_a_server() {
        let runtime = runtime(json!({}), &[replicated("node", "trainer")]);
        let ops = children(&job(json!({})), &runtime, &Settings::default(), &[]).unwrap();
        assert_eq!(ops.len(), 1, "the JobSet alone: {ops:?}");
    }
}
