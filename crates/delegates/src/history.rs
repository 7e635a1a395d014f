//! Serves the history of reports to the API server, from the series that the status server writes.

use api::history;
use api::object::Key;
use apiserver::delegate::{Delegate, Wanted};
use futures::future::BoxFuture;
use operator::status_server::Series;
use resource::status::Status;
use serde_json::Value;

/// Answers for `metrics.trainyard.dev`.
pub struct Histories(pub Series);

impl Delegate for Histories {
    fn group(&self) -> &'static str {
        history::GROUP
    }

    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>> {
        let series = self.0.clone();
        Box::pin(async move {
            let Wanted { version, namespace, plural, name } = wanted;
            let key = Key::new(&namespace, &name);
            let not_found = || Status::not_found(history::GROUP, history::PLURAL, &name);
            if version != history::VERSION || plural != history::PLURAL {
                return Err(not_found());
            }
            let file = key.clone();
            let read = tokio::task::spawn_blocking(move || series.read(&file)).await.expect("reading does not panic");
            match read {
                Ok(reports) if reports.is_empty() => Err(not_found()),
                Ok(reports) => Ok(history::object(&namespace, &name, reports)),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Err(not_found()),
                Err(error) => {
                    tracing::warn!(%error, job = %key, "the history of a job cannot be read");
                    Err(Status::new(500, "InternalError", format!("the history of {key} cannot be read: {error}")))
                }
            }
        })
    }
}
