//! Carries out a decision against the API server: sends what `reconcile::execution` asks for.

use crate::cache::Cache;
use crate::events::Recorder;
use crate::requests::{RequestError, Requests};
use crate::source::Held;
use api::error_chain;
use api::object::Target;
use reconcile::execution::{Answer, Execution, Outcome, Refusal, Request, Step};
use reconcile::{Decision, World};

/// Carries it out; the cache shows what the API has answered, and the recorder tells of events.
pub(crate) async fn execute(
    requests: &Requests,
    cache: &Cache,
    recorder: &Recorder,
    agent: Option<&'static str>,
    target: &Target,
    decision: Decision,
) -> Outcome {
    let primary = cache.get(&target.gvk, &target.key);
    let mut execution = Execution::new(target.clone(), decision);
    let mut answer = None;
    // the last object that the API has shown, as it is held
    let mut shown: Option<Held> = None;
    loop {
        let request = match execution.step(answer) {
            Step::Ask(request) => request,
            Step::End(outcome) => return outcome,
        };
        answer = Some(match request {
            Request::Call(call) => match requests.call(call, agent).await {
                Ok(held) => {
                    let object = held.open();
                    shown = Some(held);
                    Answer::Accepted(object)
                }
                Err(error) => Answer::Refused(refusal(&error)),
            },
            Request::Draw => {
                let mut entropy = [0; _];
                getrandom::fill(&mut entropy).expect("the operating system has a random source");
                Answer::Drawn(entropy)
            }
            Request::Show(object) => {
                cache.wrote(&shown.take().unwrap_or_else(|| Held::Tree(object.clone())), &object);
                Answer::Noted
            }
            Request::Record(event) => {
                // unless there is nothing that it could be about: a controller's key need not name an object
                if let Some(object) = primary.as_deref().or(event.regarding.as_ref()) {
                    recorder.record(object, &event, agent).await;
                }
                Answer::Noted
            }
        });
    }
}

fn refusal(error: &RequestError) -> Refusal {
    let reason = match error {
        RequestError::Api { reason, .. } => reason.clone(),
        _ => String::new(),
    };
    Refusal { code: error.code(), reason, message: error_chain(error), retry_after: error.retry_after() }
}
