//! What machines a task could have, as the control plane sees it.

use crate::ClientError;
use kube::Client;
use serde_json::Value;

/// `POST offers/all/look` with `{task, settings, catalog}` of a Launch answers with what is at hand.
pub const GROUP: &str = "offers.trainyard.dev";
pub const VERSION: &str = "v1alpha1";
pub const PLURAL: &str = "offers";
/// The name of all offers.
pub const NAME: &str = "all";
pub const LOOK: &str = "look";

/// Asks for it.
///
/// # Errors
/// The control plane's answer.
pub async fn look(client: &Client, namespace: &str, asked: &Value) -> Result<Value, ClientError> {
    let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{NAME}/{LOOK}");
    let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(asked.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    Ok(client.request(request).await?)
}
