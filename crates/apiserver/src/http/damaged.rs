//! Tells which stored objects are damaged, and drops them.

use super::Server;
use super::answer::{Body, response};
use super::handle::Ask;
use crate::registry::not_written;
use http::Response;
use resource::status::Status;
use serde_json::json;
use std::sync::Arc;
use store::SetAside;

/// Where. A list has the damaged rows as `items`; to delete takes such a list, and drops what it has.
pub(super) const PATH: &str = "/trainyard/damaged";

impl Server {
    pub(super) fn damaged(&self) -> Response<Body> {
        let items = self.core.store.health().set_aside;
        response(200, "application/json", json!({"items": items}).to_string())
    }

    /// # Errors
    /// 400 where the body is no such list; 500 or 507 where the disk cannot be written.
    pub(super) async fn drop_damaged(self: &Arc<Self>, ask: Ask) -> Result<Response<Body>, Status> {
        #[derive(serde::Deserialize)]
        struct List {
            items: Vec<SetAside>,
        }
        let list: List =
            serde_json::from_slice(ask.body.text()).map_err(|error| Status::bad_request(error.to_string()))?;
        self.core.store.drop_damaged(list.items).await.map_err(|error| not_written(&error))?;
        Ok(self.damaged())
    }
}
