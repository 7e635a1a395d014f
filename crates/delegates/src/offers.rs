//! Answers clients that ask which machines a task could get (`offers.trainyard.dev`).

use apiserver::delegate::{Delegate, Wanted};
use bytes::Bytes;
use client::offers::{GROUP, LOOK, NAME, PLURAL, VERSION};
use futures::future::BoxFuture;
use launcher::{Asked, Eyes};
use resource::status::Status;
use serde_json::Value;
use std::sync::OnceLock;

/// Answers from what the control plane observes.
#[derive(Default)]
pub struct OffersNow(OnceLock<Eyes>);

impl OffersNow {
    /// Sets what it observes with. That needs the server that this delegate is a part of, so it is set later.
    pub fn open(&self, eyes: Eyes) {
        let _ = self.0.set(eyes); // they open once
    }
}

fn missing(wanted: &Wanted) -> Status {
    Status::not_found(GROUP, &wanted.plural, &wanted.name)
}

impl Delegate for OffersNow {
    fn group(&self) -> &'static str {
        GROUP
    }

    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>> {
        Box::pin(std::future::ready(Err(missing(&wanted))))
    }

    fn post(&self, wanted: Wanted, subresource: &str, body: Bytes) -> BoxFuture<'static, Result<Bytes, Status>> {
        let is_known =
            wanted.version == VERSION && wanted.plural == PLURAL && wanted.name == NAME && subresource == LOOK;
        let eyes = self.0.get().filter(|_| is_known).cloned();
        Box::pin(async move {
            let eyes = eyes.ok_or_else(|| missing(&wanted))?;
            let asked = Asked::read(&body).ok_or_else(|| Status::bad_request("the body must be JSON with a task"))?;
            let found = eyes.asked(&wanted.namespace, &asked).await.map_err(Status::bad_request)?;
            Ok(found.to_json().to_string().into())
        })
    }
}
