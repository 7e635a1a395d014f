//! Service accounts and their tokens. Source: `pkg/registry/core/serviceaccount` of Kubernetes 1.36.

use super::access::restriction;
use super::kit::{age, at, child, int, items, text};
use api::field::{Error, ErrorList, Path};
use jiff::{SignedDuration, Timestamp};
use resource::status::Status;
use resource::{Context, Facts, Outcome, Strategy};
use serde_json::{Value, json};

const GROUP: &str = "authentication.k8s.io";
/// Lifetime of a token that says nothing about it, in seconds.
const DEFAULT_SECS: i64 = 3600;
const MIN_SECS: i64 = 600;
const MAX_SECS: i64 = 1 << 32;

/// The kind `ServiceAccount`.
pub struct Accounts;

impl Strategy for Accounts {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, delete_returns_object: true, ..Facts::default() }
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), age(object, now)]
    }

    fn post(
        &self,
        cx: &Context<'_>,
        subresource: &str,
        parent: &Value,
        body: &Value,
    ) -> Option<Result<Outcome, Status>> {
        (subresource == "token").then(|| token(cx, parent, body))
    }

    fn posted(&self, subresource: &str, name: &str, body: &Value) -> Result<(), Status> {
        let given = text(body, "metadata.name");
        if subresource != "token" || given.is_empty() || given == name {
            return Ok(());
        }
        let detail = "must match the service account name if specified";
        let errors = vec![Error::invalid(&Path::new("metadata").child("name"), given, detail)];
        Err(Status::invalid(GROUP, "TokenRequest", name, &errors))
    }
}

/// What a token is bound to beside its account, as a claim.
fn bound(cx: &Context<'_>, account: &Value, reference: &Value) -> Result<(&'static str, Value), Status> {
    let (kind, name, uid) = (text(reference, "kind"), text(reference, "name"), text(reference, "uid"));
    let (claim, plural, namespace) = match (kind, text(reference, "apiVersion")) {
        ("Pod", "v1") => ("pod", "pods", cx.namespace),
        ("Secret", "v1") => ("secret", "secrets", cx.namespace),
        ("Node", "v1") => ("node", "nodes", ""),
        (_, version) => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let Some(object) = (cx.lookup)("", plural, namespace, name) else {
        return Err(Status::not_found("", plural, name));
    };
    if kind == "Pod" {
        let own = text(account, "metadata.name");
        if text(&object, "spec.serviceAccountName") != own {
            let why = format!(
                "cannot bind token for serviceaccount {own:?} to pod running with different serviceaccount name."
            );
            return Err(Status::bad_request(why));
        }
    }
    let there = api::object::uid(&object);
    if !uid.is_empty() && uid != there {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    Ok((claim, json!({"name": name, "uid": there})))
}

/// The answer to a TokenRequest.
fn token(cx: &Context<'_>, account: &Value, body: &Value) -> Result<Outcome, Status> {
    let name = text(account, "metadata.name");
    if let Some(node) = cx.who.node() {
        let pod = |pod: &str| (cx.lookup)("", "pods", cx.namespace, pod);
        restriction::token(node, body, pod).map_err(|why| Status::forbidden("", "serviceaccounts", name, &why))?;
    }
    let namespace = text(body, "metadata.namespace");
    if !namespace.is_empty() && namespace != cx.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why));
    }
    let (uid, there) = (text(body, "metadata.uid"), api::object::uid(account));
    if !uid.is_empty() && uid != there {
        let why =
            format!("the UID in the token request ({uid}) does not match the UID of the service account ({there})");
        return Err(Status::conflict(GROUP, "TokenRequest", name, &why));
    }
    let seconds = int(body, "spec.expirationSeconds").unwrap_or(DEFAULT_SECS);
    let path = Path::new("spec").child("expirationSeconds");
    let mut errors = ErrorList::new();
    if seconds < MIN_SECS {
        errors.push(Error::invalid(&path, seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds > MAX_SECS {
        errors.push(Error::invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    if !errors.is_empty() {
        return Err(Status::invalid(GROUP, "TokenRequest", "", &errors));
    }
    let mut audiences = items(body, "spec.audiences").to_vec();
    if audiences.is_empty() {
        audiences.push(cx.tokens.issuer().into());
    }
    let mut own = json!({
        "namespace": cx.namespace,
        "serviceaccount": {"name": name, "uid": api::object::uid(account)},
    });
    let reference = at(body, "spec.boundObjectRef");
    if !reference.is_null() {
        let (claim, value) = bound(cx, account, reference)?;
        own[claim] = value;
        if claim == "pod" {
            // A pod's token also says where the pod runs.
            let pod = (cx.lookup)("", "pods", cx.namespace, text(reference, "name")).unwrap_or_default();
            let node = text(&pod, "spec.nodeName");
            if !node.is_empty() {
                let there = (cx.lookup)("", "nodes", "", node).unwrap_or_default();
                own["node"] = json!({"name": node});
                if !api::object::uid(&there).is_empty() {
                    own["node"]["uid"] = api::object::uid(&there).into();
                }
            }
        }
    }
    let now = cx.now.as_second();
    let claims = json!({
        "aud": audiences,
        "exp": now + seconds,
        "iat": now,
        "nbf": now,
        "iss": cx.tokens.issuer(),
        "jti": cx.world.uid(),
        "kubernetes.io": own,
        "sub": format!("system:serviceaccount:{}:{name}", cx.namespace),
    });
    let expires = cx.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    // whatever else was given stays
    let mut metadata = at(body, "metadata").as_object().cloned().unwrap_or_default();
    metadata.retain(|_, value| !super::kit::unset(value));
    for (field, value) in [
        ("name", name.into()),
        ("namespace", cx.namespace.into()),
        ("uid", api::object::uid(account).into()),
        ("creationTimestamp", super::pod::stamp(cx.now)),
    ] {
        metadata.insert(field.to_owned(), value);
    }
    let mut sent = body.clone();
    sent["apiVersion"] = "authentication.k8s.io/v1".into();
    sent["kind"] = "TokenRequest".into();
    child(&mut sent, "spec")["expirationSeconds"] = seconds.into();
    let reply = json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": metadata,
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
        "status": {"token": cx.tokens.sign(&claims), "expirationTimestamp": super::pod::stamp(expires)},
    });
    Ok(Outcome::Made { sent, reply })
}
