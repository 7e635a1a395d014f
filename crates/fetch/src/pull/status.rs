//! Tells the operator's status server how far a run is, where the pod's variables name one (Kubeflow's TrainJobStatus). The run goes
//! on whatever becomes of a report.

use super::{Said, Say};
use crate::http::{Client, Redirects, Secrets, request, set};
use crate::plan::error::shown;
use crate::plan::settings::Variables;
use bytes::Bytes;
use http::Method;
use hyper_util::client::proxy::matcher::Matcher;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a report may take.
const LONGEST: Duration = Duration::from_secs(5);

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
    pub files_done: usize,
    pub left: Option<Duration>,
}

impl Progress {
    /// As the status server takes it; `None`: of nothing there is no part.
    fn report(&self, now: jiff::Timestamp) -> Option<Value> {
        let percent = u128::from(self.done).saturating_mul(100).checked_div(u128::from(self.total))?;
        let metric = |name: &str, value: String| json!({"name": name, "value": value});
        let mut status = json!({
            "lastUpdatedTime": now.to_string(),
            "progressPercentage": u64::try_from(percent).unwrap_or(100).min(100),
            "metrics": [
                metric("bytes_done", self.done.to_string()),
                metric("bytes_total", self.total.to_string()),
                metric("files_done", self.files_done.to_string()),
            ],
        });
        if let (Some(left), Some(status)) = (self.left, status.as_object_mut()) {
            status.insert("estimatedRemainingSeconds".to_owned(), left.as_secs().into());
        }
        Some(json!({"trainerStatus": status}))
    }
}

/// The newest report is sent; those that it overtakes are not.
pub struct Status {
    newest: watch::Sender<Progress>,
    task: JoinHandle<()>,
}

impl Status {
    /// `None`: no server is named.
    pub fn start(variables: &Variables, secrets: &Secrets, say: &Say) -> Option<Self> {
        let url = variables.get("KUBEFLOW_TRAINER_SERVER_URL")?.to_owned();
        let token = variables.get("KUBEFLOW_TRAINER_SERVER_TOKEN").map(PathBuf::from);
        let authority = variables.get("KUBEFLOW_TRAINER_SERVER_CA_CERT").map(PathBuf::from);
        // it is beside the control plane: no proxy leads there
        let client = Client::new(Matcher::builder().build(), LONGEST, secrets.clone(), authority);
        let (newest, mut news) = watch::channel(Progress::default());
        let say = say.clone();
        let task = tokio::spawn(async move {
            let mut is_told = false;
            while news.changed().await.is_ok() {
                let Some(report) = news.borrow_and_update().report(jiff::Timestamp::now()) else { continue };
                let sent = tokio::time::timeout(LONGEST, send(&client, &url, token.as_ref(), &report)).await;
                if let Err(why) = sent.unwrap_or_else(|_| Err("no answer for 5 seconds".to_owned()))
                    && !std::mem::replace(&mut is_told, true)
                {
                    say(Said::Warning(format!("progress is not reported: {}: {why}", shown(&url))));
                }
            }
        });
        Some(Self { newest, task })
    }

    pub fn tell(&self, progress: Progress) {
        self.newest.send_replace(progress);
    }

    /// The last report is sent first, if that does not take long.
    pub async fn close(self) {
        drop(self.newest);
        let _ = tokio::time::timeout(LONGEST, self.task).await;
    }
}

async fn send(client: &Client, url: &str, token: Option<&PathBuf>, report: &Value) -> Result<(), String> {
    let said = |fault: crate::http::Fault| fault.into_error().text;
    let mut request = request(Method::POST, url).map_err(said)?;
    set(&mut request, "content-type", "application/json").map_err(said)?;
    if let Some(path) = token {
        let token = crate::small::read_aside(path).await.map_err(|e| format!("{}: {e}", path.display()))?;
        client.secrets.learn(token.trim());
        set(&mut request, "authorization", &format!("Bearer {}", token.trim())).map_err(said)?;
    }
    *request.body_mut() = Bytes::from(report.to_string());
    let answer = client.send(request, Redirects::Show).await.map_err(said)?;
    if answer.status.is_success() { Ok(()) } else { Err(format!("the server answers {}", answer.status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_form_of_trainer_status() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let progress = Progress { done: 31, total: 400, files_done: 2, left: Some(Duration::from_secs(240)) };
        let expected = json!({"trainerStatus": {
            "lastUpdatedTime": "2026-01-02T03:04:05Z", "progressPercentage": 7, "estimatedRemainingSeconds": 240,
            "metrics": [{"name": "bytes_done", "value": "31"}, {"name": "bytes_total", "value": "400"}, {"name": "files_done", "value": "2"}],
        }});
        assert_eq!(progress.report(now), Some(expected));
        assert_eq!(Progress::default().report(now), None);
    }
}
