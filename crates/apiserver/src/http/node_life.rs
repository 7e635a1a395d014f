//! The life of the Node whose agent asks: what an agent holds open ends with it.

use super::Server;
use crate::auth::NODE_UID;
use crate::registry::Core;
use futures::future::BoxFuture;
use resource::User;
use resource::admission::Objects;
use std::future::Future;
use std::sync::Arc;
use store::{Interest, Key};

/// Which Node object it is.
#[derive(Clone, Debug)]
pub(crate) struct NodeLife {
    name: String,
    uid: String,
}

impl NodeLife {
    /// That of the Node that the user's token is bound to, or else of the one that is there now; `None` for users that are no agents,
    /// and where there is no such Node.
    pub(crate) fn of(core: &Core, user: &User) -> Option<Self> {
        let name = user.node()?.to_owned();
        let uid = match user.extra.get(NODE_UID).and_then(|uids| uids.first()) {
            Some(uid) => uid.clone(),
            None => api::object::uid(&*Objects::get(core, "", "nodes", "", &name)?).to_owned(),
        };
        Some(Self { name, uid })
    }

    fn goes_on(&self, core: &Core) -> bool {
        let there = Objects::get(core, "", "nodes", "", &self.name);
        there.is_some_and(|node| api::object::uid(&node) == self.uid && !api::object::is_terminating(&node))
    }

    /// Returns when the Node is deleted, or is to be.
    async fn end(self, core: Arc<Core>) {
        let Some(bucket) = core.catalog().get("", "v1", "nodes").map(|served| served.bucket.clone()) else { return };
        loop {
            let interest = Interest::Object(Key::new("", &self.name));
            let Ok(mut watcher) = core.store.watch_some(&bucket, interest, core.store.revision()) else { return };
            // looked at after the watch has begun, so that nothing is missed in between
            while self.goes_on(&core) {
                match watcher.next().await {
                    Ok(batch) if batch.events.is_empty() => return, // the store is gone
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            if !self.goes_on(&core) {
                return;
            }
        }
    }
}

impl Server {
    /// Does something for an agent until it is done, or the Node is deleted.
    pub(super) fn while_it_lives(
        self: &Arc<Self>,
        life: Option<NodeLife>,
        what: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let Some(life) = life else { return Box::pin(what) };
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let name = life.name.clone();
            tokio::select! {
                () = what => {}
                () = life.end(core) => tracing::debug!(node = name, "what a node's agent held open ends with its Node"),
            }
        })
    }
}
