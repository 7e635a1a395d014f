//! Webhooks: whether they are installed, can be reached, and answer.

use super::controllers::whose;
use super::install;
use crate::facts::{Facts, Probe, Seen};
use crate::finding::{Findings, Remedy, Severity};
use api::object::{meta, text};
use client::codes::ErrorCode;
use serde_json::Value;

/// Groups whose kinds we work with.
const GROUPS: [&str; 2] = ["trainer.kubeflow.org", "jobset.x-k8s.io"];
/// The webhook configurations of Trainer's controller, upstream's and ours.
const TRAINERS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org"),
    ("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"),
];
/// JobSet's and Kueue's own configurations, which belong there.
const KNOWN: [&str; 2] = ["jobset", "kueue"];

/// Whether a webhook is called for our kinds.
pub(super) fn concerns_us(webhook: &Value) -> bool {
    let rules = webhook["rules"].as_array().into_iter().flatten();
    let groups = rules.flat_map(|rule| rule["apiGroups"].as_array().into_iter().flatten());
    groups.filter_map(Value::as_str).any(|group| GROUPS.contains(&group))
}

pub(super) fn judge(facts: &Facts) -> Findings {
    let mut found = Findings::new("webhooks");
    let embedded = facts.embedded().is_some();
    match &facts.webhooks {
        Seen::Known(configurations) => {
            for (kind, name) in TRAINERS {
                let is_there = configurations.iter().any(|one| one["kind"] == kind && meta(one, "name") == name);
                // this server includes admission
                if !is_there && !embedded && has_trainjobs(facts) {
                    let message = "not installed: TrainJobs are accepted without checks";
                    found.add(
                        ErrorCode::WebhookMissing,
                        Severity::Error,
                        format!("{kind}/{name}"),
                        message,
                        install(facts),
                    );
                }
            }
            for configuration in configurations {
                judge_one(facts, &mut found, configuration);
            }
        }
        Seen::Unknown(why) => found.unknown("webhook configurations", why),
    }
    let object = format!("TrainJob/{} (dry run)", facts.namespace);
    match &facts.probe {
        Seen::Known(Probe::Refused) => found.ok(object, "a TrainJob without a runtime is refused, as it should be"),
        Seen::Known(Probe::Taken) => match selected(facts) {
            Some(labels) => found.add(
                ErrorCode::WebhookMissing,
                Severity::Warning,
                object,
                format!("TrainJobs of this namespace are not checked: the webhooks are for namespaces with {labels}"),
                Remedy::advise("name another namespace (-n), or install the operator for all (docs/cluster.md)"),
            ),
            None => found.add(
                ErrorCode::WebhookMissing,
                Severity::Error,
                object,
                "a TrainJob without a runtime is accepted: no webhook checks TrainJobs",
                install(facts),
            ),
        },
        Seen::Known(Probe::NoAnswer(message)) => found.add(
            ErrorCode::WebhookSilent,
            Severity::Error,
            object,
            format!("TrainJobs cannot be created, because a webhook does not answer: {message}"),
            Remedy::why(
                "is the operator running",
                format!("kubectl -n {} get deployments,pods", operator_namespace(facts)),
            ),
        ),
        Seen::Unknown(why) => found.unknown(object, why),
    }
    found
}

/// The operator's namespace, as far as it is known.
fn operator_namespace(facts: &Facts) -> &str {
    let ours = facts.deployments.items().iter().find(|one| whose(one) == Some("trainyard"));
    ours.map_or("kubeflow-system", |operator| meta(operator, "namespace"))
}

/// The labels that select the namespaces of Trainer's validation; `None` if it has no selector.
fn selected(facts: &Facts) -> Option<String> {
    let (kind, name) = TRAINERS[1];
    let configuration = facts.webhooks.items().iter().find(|one| one["kind"] == kind && meta(one, "name") == name)?;
    let labels = configuration["webhooks"].as_array()?.iter().find_map(|webhook| {
        webhook["namespaceSelector"]["matchLabels"].as_object().filter(|labels| !labels.is_empty())
    })?;
    let told = labels.iter().map(|(label, value)| format!("{label}={}", value.as_str().unwrap_or_default()));
    Some(told.collect::<Vec<_>>().join(","))
}

/// Whether the cluster has the kind TrainJob, as far as it is known.
fn has_trainjobs(facts: &Facts) -> bool {
    !matches!(facts.installed.get("trainjobs.trainer.kubeflow.org"), Some(Seen::Known(None)))
}

/// Whether webhooks of an operator outside the cluster are left over: an operator is on the cluster, or no webhook answers.
fn is_wanted_inside(facts: &Facts) -> bool {
    let is_deployed = facts.deployments.items().iter().any(|one| whose(one) == Some("trainyard"));
    is_deployed || matches!(facts.probe, Seen::Known(Probe::NoAnswer(_)))
}

fn judge_one(facts: &Facts, found: &mut Findings, configuration: &Value) {
    let (kind, name) = (text(configuration, "kind"), meta(configuration, "name"));
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    let ours: Vec<&Value> = webhooks.filter(|webhook| concerns_us(webhook)).collect();
    let Some(first) = ours.first() else { return };
    let object = format!("{kind}/{name}");
    let before = found.all.len();
    let is_trainers = TRAINERS.contains(&(kind, name));
    if !is_trainers && !KNOWN.iter().any(|known| name.contains(known)) {
        let whom = place(first);
        let message = format!("it has webhooks for the same kinds, at {whom}: two may undo each other's work");
        found.add(
            ErrorCode::WebhookForeign,
            Severity::Warning,
            object.clone(),
            message,
            Remedy::why("if it is left over", format!("kubectl delete {} {name}", kind.to_lowercase())),
        );
    }
    if is_trainers && !text(&first["clientConfig"], "url").is_empty() && is_wanted_inside(facts) {
        let message = format!(
            "an operator outside the cluster registered it by URL, at {}; kubectl apply of the manifests is refused while it is \
             there (exactly one of url or service is required)",
            place(first)
        );
        let command = format!("kubectl delete {} {name}", kind.to_lowercase());
        let remedy =
            Remedy::why("to run the operator on the cluster: delete it, then apply the manifests again", command);
        found.add(ErrorCode::WebhookSilent, Severity::Error, object.clone(), message, remedy);
    }
    for webhook in &ours {
        let config = &webhook["clientConfig"];
        if config["service"].is_object() && text(config, "caBundle").is_empty() {
            let message =
                format!("{} has no caBundle, so the API server cannot trust its answers", text(webhook, "name"));
            let command = format!("kubectl -n {} get deployments,pods", text(&config["service"], "namespace"));
            let remedy = Remedy::why("the operator fills it in: is it running", command);
            found.add(ErrorCode::WebhookSilent, Severity::Error, object.clone(), message, remedy);
        }
        if is_trainers && webhook["failurePolicy"] == "Ignore" {
            let message =
                format!("{} is skipped when it does not answer (failurePolicy Ignore)", text(webhook, "name"));
            found.add(ErrorCode::WebhookMissing, Severity::Warning, object.clone(), message, install(facts));
        }
    }
    let mut services = super::services(configuration);
    services.sort();
    services.dedup();
    for (namespace, service) in services {
        match facts.endpoints.get(&(namespace.clone(), service.clone())) {
            Some(Seen::Known(0)) => found.add(
                ErrorCode::WebhookSilent,
                Severity::Error,
                object.clone(),
                format!("nothing is ready behind its Service {namespace}/{service}"),
                Remedy::run(format!(
                    "kubectl -n {namespace} describe service {service}; kubectl -n {namespace} get pods"
                )),
            ),
            Some(Seen::Known(_)) | None => {}
            Some(Seen::Unknown(why)) => found.unknown(object.clone(), why),
        }
    }
    if found.all.len() == before {
        found.ok(object, format!("{} webhooks, at {}", ours.len(), place(first)));
    }
}

/// The address at which a webhook answers.
fn place(webhook: &Value) -> String {
    let config = &webhook["clientConfig"];
    match config["url"].as_str() {
        Some(url) => {
            let end = url.match_indices('/').nth(2).map_or(url.len(), |(at, _)| at);
            url[..end].to_owned()
        }
        None => format!("Service {}/{}", text(&config["service"], "namespace"), text(&config["service"], "name")),
    }
}
