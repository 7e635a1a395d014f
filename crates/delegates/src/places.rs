//! Serves places in the scheduler's queue (`queue.trainyard.dev`).

use api::object::Key;
use api::queue_place::{self, Metadata, QueuePlace};
use apiserver::delegate::{Delegate, Wanted};
use futures::future::BoxFuture;
use operator::controllers::Scheduler;
use resource::status::Status;
use serde_json::Value;

/// Answers for `queue.trainyard.dev`, from what the scheduler knows.
pub struct Places(pub Scheduler);

impl Delegate for Places {
    fn group(&self) -> &'static str {
        queue_place::GROUP
    }

    fn has(&self, plural: &str) -> bool {
        plural == queue_place::PLURAL
    }

    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>> {
        let Wanted { version, namespace, plural, name } = wanted;
        let is_known = version == queue_place::VERSION && plural == queue_place::PLURAL;
        let standing = if is_known { self.0.standing(&Key::new(&namespace, &name)) } else { None };
        let answer = match standing {
            None => Err(Status::not_found(queue_place::GROUP, queue_place::PLURAL, &name)),
            Some(standing) => {
                let place = QueuePlace {
                    api_version: format!("{}/{}", queue_place::GROUP, queue_place::VERSION),
                    kind: "QueuePlace".to_owned(),
                    metadata: Metadata { name, namespace },
                    position: standing.position,
                    overall: Some(standing.overall),
                    ahead: standing.ahead,
                };
                Ok(serde_json::to_value(place).expect("plain data"))
            }
        };
        Box::pin(std::future::ready(answer))
    }
}
