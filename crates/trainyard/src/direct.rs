//! The controllers' lists and watches, straight from the API server's store: both are in this process.

use api::object::Gvk;
use apiserver::registry::{Change, Core, Followed};
use driver::{Held, Source, Told};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use objects::packed::Packed;
use std::sync::Arc;

/// The API server as a source of objects.
pub struct Direct(pub Arc<Core>);

impl Source for Direct {
    fn has(&self, gvk: &Gvk) -> bool {
        self.0.stores(gvk)
    }

    fn takes_trees(&self) -> bool {
        true
    }

    fn list(&self, gvk: &Gvk) -> Option<(Vec<Arc<Packed>>, u64)> {
        self.0.everything(gvk)
    }

    fn watch(&self, gvk: &Gvk, revision: u64) -> Option<BoxStream<'static, Told>> {
        let following = self.0.follow(gvk, revision)?;
        let portions = stream::unfold(Some(following), |following| async move {
            let mut following = following?;
            Some(match following.next().await {
                Followed::Changes(changes, until) => {
                    let told = changes.into_iter().map(|change| match change {
                        Change::Is(object) => Told::Is(Held::Packed(object)),
                        Change::Was(object) => Told::Was(Held::Packed(object)),
                    });
                    (told.chain([Told::Nothing(until.to_string())]).collect::<Vec<_>>(), Some(following))
                }
                Followed::Ended(until) => (vec![Told::Nothing(until.to_string())], None),
                Followed::Forgotten => (vec![Told::Forgotten], None),
            })
        });
        Some(portions.flat_map(stream::iter).boxed())
    }
}
