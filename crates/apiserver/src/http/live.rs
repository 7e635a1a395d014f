//! Reads of kinds whose objects are made on request and never stored.

use super::Server;
use super::answer::Body;
use super::handle::{Ask, not_allowed};
use crate::query::ListOptions;
use crate::registry::{Answer, Live, Object, Target, not_found};
use http::Response;
use resource::status::Status;
use serde_json::json;
use std::sync::Arc;

impl Server {
    /// `get` and `list`; there is no history that could be watched.
    pub(super) async fn live(
        &self,
        ask: &Ask,
        target: &Target,
        verb: &str,
        live: &dyn Live,
    ) -> Result<Response<Body>, Status> {
        let served = &target.served;
        let accepted = ask.negotiate(Self::offer(served))?;
        let objects = live.objects(&*self.core, &target.namespace);
        match verb {
            "get" => {
                let objects = objects.await;
                let object = objects.into_iter().find(|object| api::object::meta(object, "name") == target.name);
                let object = Object::Made(Arc::new(object.ok_or_else(|| not_found(target))?));
                self.one(ask, target, &Answer { code: 200, object, warnings: Vec::new() }, &accepted)
            }
            "list" => {
                let options = ListOptions::parse(&ask.query)?;
                served.check_fields(&options.fields)?;
                let include = super::verbs::include_for(ask, &accepted)?;
                let selected = objects.await.into_iter().filter(|object| served.selects(&options, object));
                let items: Vec<Object> = selected.map(|object| Object::Made(Arc::new(object))).collect();
                self.many(served, &items, json!({}), &accepted, include)
            }
            _ => Err(not_allowed()),
        }
    }
}
