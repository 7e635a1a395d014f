//! Keeps a connection open to the API server, by which it reaches this node's pods.

use super::{PATH, PROTOCOL, VERSION_HEADER, serve};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// First and longest wait before it dials again; a connection that held this long was a good one.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long dialling may take.
const DIAL_MAX: Duration = Duration::from_secs(20);

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing that another attempt could mend: this program has to be another version.
    #[error("{0}")]
    OtherVersion(String),
    #[error("{0}")]
    Refused(String),
    #[error("the API server cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Keeps a connection open and answers over it, for ever. `is_open` tells whether there is one.
///
/// # Errors
/// `DialError::OtherVersion`: the API server does not understand this agent.
pub async fn keep_open(client: Client, data: PathBuf, version: &str, is_open: watch::Sender<bool>) -> DialError {
    let mut retry = RETRY_MIN;
    let mut told = String::new();
    loop {
        let opened = match timeout(DIAL_MAX, open(&client, version)).await {
            Ok(opened) => opened,
            Err(late) => Err(DialError::Unreachable(Box::new(late))),
        };
        match opened {
            Ok(connection) => {
                tracing::info!("connected to the API server");
                told.clear();
                let since = Instant::now();
                is_open.send_replace(true);
                if let Err(error) = serve(TokioIo::new(connection), data.clone()).await {
                    tracing::info!(%error, "the connection to the API server ended; pods go on");
                }
                is_open.send_replace(false);
                if since.elapsed() > RETRY_MAX {
                    retry = RETRY_MIN;
                }
            }
            Err(error @ DialError::OtherVersion(_)) => return error,
            Err(error @ (DialError::Refused(_) | DialError::Unreachable(_))) => {
                let why = api::error_chain(&error);
                if why != told {
                    tracing::warn!("{why}; trying again, pods go on");
                    told = why;
                }
            }
        }
        sleep(retry).await;
        retry = retry.saturating_mul(2).min(RETRY_MAX);
    }
}

async fn open(client: &Client, version: &str) -> Result<hyper::upgrade::Upgraded, DialError> {
    let unreachable = |error: Box<dyn std::error::Error + Send + Sync>| -> DialError { DialError::Unreachable(error) };
    let request = Request::get(PATH)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, PROTOCOL)
        .header(VERSION_HEADER, version)
        .body(Body::empty())
        .map_err(|error| unreachable(error.into()))?;
    let answer = client.send(request).await.map_err(|error| unreachable(error.into()))?;
    let status = answer.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return hyper::upgrade::on(answer).await.map_err(|error| unreachable(error.into()));
    }
    let body = answer.into_body().collect().await.map_err(|error| unreachable(error.into()))?.to_bytes();
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let told = told["message"].as_str().unwrap_or_default();
    Err(match status {
        StatusCode::UPGRADE_REQUIRED => DialError::OtherVersion(told.to_owned()),
        StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => DialError::Refused(format!(
            "the API server takes no nodes on other machines: it is an older trainyard, or another program ({status})"
        )),
        StatusCode::UNAUTHORIZED => DialError::Refused(
            "the API server does not know this node's token: it has expired, or the node was deleted".to_owned(),
        ),
        _ => DialError::Refused(format!("the API server refuses this node's connection ({status}): {told}")),
    })
}
