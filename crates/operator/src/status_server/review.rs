//! Reviews tokens with the API server, and keeps the answers for a minute.

use api::object::Key;
use http::Method;
use http::header::CONTENT_TYPE;
use kube::Client;
use plan::plugins::status::audience;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a good token is good without another look, which is for how long one of a deleted pod may go on being so.
/// Ten thousand jobs that report every five seconds would else ask the API server two thousand times a second.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// How many good tokens are remembered.
const GOOD_MAX: usize = 65536;

/// Reviews tokens.
pub(super) struct Reviews {
    client: Client,
    /// By SHA-256 of the token: which TrainJob it is for, and until when that holds.
    good: Mutex<BTreeMap<[u8; 32], (Key, Instant)>>,
}

impl Reviews {
    pub fn new(client: Client) -> Self {
        Self { client, good: Mutex::default() }
    }

    /// Whether the token is for this TrainJob's audience, and of a service account of its namespace.
    ///
    /// # Errors
    /// The API server does not say.
    // Q-30 (fixed): upstream verifies tokens itself, with keys that it finds through the API server, which clusters whose
    // issuer is elsewhere do not offer. The API server reviews tokens wherever they come from.
    pub async fn may_post(&self, token: &str, key: &Key) -> Result<bool, kube::Error> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let now = Instant::now();
        if self.good().get(&digest).is_some_and(|(good, until)| good == key && now < *until) {
            return Ok(true);
        }
        let audience = audience(&key.namespace, &key.name);
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        });
        let request = http::Request::builder()
            .method(Method::POST)
            .uri("/apis/authentication.k8s.io/v1/tokenreviews")
            .header(CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes())
            .expect("invariant: a constant head");
        let reviewed = self.client.request::<Value>(request).await?;
        let status = &reviewed["status"];
        let account = status["user"]["username"].as_str().unwrap_or_default();
        let is_good = status["authenticated"] == true
            && status["audiences"].as_array().is_some_and(|list| list.contains(&json!(audience)))
            && account.starts_with(&format!("system:serviceaccount:{}:", key.namespace));
        if is_good {
            let mut good = self.good();
            if good.len() >= GOOD_MAX {
                good.retain(|_, (_, until)| now < *until);
            }
            if good.len() < GOOD_MAX {
                good.insert(digest, (key.clone(), api::time::after(now, GOOD_FOR)));
            }
        }
        Ok(is_good)
    }

    fn good(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], (Key, Instant)>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
