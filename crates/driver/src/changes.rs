//! What becomes of a kind's objects, for readers that are no reconcilers and keep no cache: from the server in this process, or by
//! requests.

use crate::source::{Source, Told};
use api::object::Gvk;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use objects::packed::Packed;
use objects::selector::{Selector, Signs};
use objects::take::{self, Take};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks whether a server in this process has the kind by now.
const RETRY: Duration = Duration::from_secs(1);
/// The least that a reader follows before it asks anew: a server that stops ends what follows it as soon as it begins.
const LASTS: Duration = Duration::from_millis(250);

/// Where changes come from.
#[derive(Clone)]
pub enum Feed {
    /// The server in this process. It shows all objects of a kind; the reader passes over those that it does not want.
    Source(Arc<dyn Source>),
    /// Lists and watches; of one namespace, where one is named.
    Requests { client: Client, namespace: Option<String> },
}

impl Feed {
    /// Follows the objects of a kind for ever, first those that there are. What fails is tried again, with pauses up to half a minute.
    ///
    /// # Parameters
    /// - `plural`: the kind's name in paths.
    /// - `which`: spares requests, and a first list, what the reader would pass over.
    pub fn changes(&self, gvk: &Gvk, plural: &str, which: Config) -> BoxStream<'static, Event<Arc<Value>>> {
        self.parts(gvk, plural, which, take::lean)
    }

    /// The same; of the objects that there are at first, members may be missing that `take` leaves out.
    pub fn parts(
        &self,
        gvk: &Gvk,
        plural: &str,
        which: Config,
        take: fn(&str) -> Take,
    ) -> BoxStream<'static, Event<Arc<Value>>> {
        let reading = Reading { signs: signs(&which), take };
        match self {
            Self::Source(source) => followed(source.clone(), gvk.clone(), reading, At::Start).boxed(),
            Self::Requests { client, namespace } => {
                let kind = GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind);
                let kind = ApiResource::from_gvk_with_plural(&kind, plural);
                let api: Api<DynamicObject> = match namespace {
                    Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
                    None => Api::all_with(client.clone(), &kind),
                };
                watched(api, which).boxed()
            }
        }
    }

    /// Only what changes: of lists, at first and later, the reader hears nothing.
    pub fn news(&self, gvk: &Gvk, plural: &str, which: Config) -> BoxStream<'static, Event<Arc<Value>>> {
        match self {
            Self::Source(source) => {
                let reading = Reading { signs: Signs::default(), take: take::lean };
                let now = source.list(gvk).map_or(At::Start, |(_, revision)| At::Revision(revision));
                followed(source.clone(), gvk.clone(), reading, now).boxed()
            }
            Self::Requests { .. } => self.changes(gvk, plural, which),
        }
        .filter(|event| std::future::ready(matches!(event, Event::Apply(_) | Event::Delete(_))))
        .boxed()
    }
}

/// What a reader wants of a first list.
#[derive(Clone)]
struct Reading {
    signs: Signs,
    take: fn(&str) -> Take,
}

fn watched(api: Api<DynamicObject>, which: Config) -> impl Stream<Item = Event<Arc<Value>>> {
    let tree = |object: DynamicObject| {
        Arc::new(serde_json::to_value(object).expect("invariant: objects from the API are JSON"))
    };
    watcher(api, which).default_backoff().filter_map(move |change| {
        std::future::ready(match change {
            Ok(Event::Init) => Some(Event::Init),
            Ok(Event::InitApply(object)) => Some(Event::InitApply(tree(object))),
            Ok(Event::InitDone) => Some(Event::InitDone),
            Ok(Event::Apply(object)) => Some(Event::Apply(tree(object))),
            Ok(Event::Delete(object)) => Some(Event::Delete(tree(object))),
            Err(error) => {
                tracing::debug!(%error, "objects cannot be watched; trying again");
                None
            }
        })
    })
}

/// How far a reader is.
enum At {
    /// Nothing is known.
    Start,
    /// Up to this revision.
    Revision(u64),
    Following {
        told: BoxStream<'static, Told>,
        revision: u64,
        since: Instant,
    },
}

/// What tells without reading an object that the reader would pass over it.
fn signs(which: &Config) -> Signs {
    let labels = which.label_selector.as_deref().map(Selector::parse);
    let mut signs = labels.and_then(Result::ok).map_or_else(Signs::default, |labels| labels.signs());
    let fields = which.field_selector.as_deref().unwrap_or_default().split(',');
    let terms = fields.filter_map(|term| term.split_once('=')).filter(|(field, _)| !field.ends_with('!'));
    terms.for_each(|(_, value)| signs.ask_for(value.trim_start_matches('=')));
    signs
}

fn followed(source: Arc<dyn Source>, gvk: Gvk, reading: Reading, from: At) -> impl Stream<Item = Event<Arc<Value>>> {
    stream::unfold(from, move |at| next(source.clone(), gvk.clone(), reading.clone(), at)).flatten()
}

/// The next portion, which may be none, and where it leaves the reader.
async fn next(
    source: Arc<dyn Source>,
    gvk: Gvk,
    reading: Reading,
    at: At,
) -> Option<(BoxStream<'static, Event<Arc<Value>>>, At)> {
    let nothing = || stream::empty().boxed();
    let one = |event| stream::iter([event]).boxed();
    Some(match at {
        At::Start => match source.list(&gvk) {
            Some((objects, revision)) => (listed(objects, reading).boxed(), At::Revision(revision)),
            None => {
                tokio::time::sleep(RETRY).await;
                (nothing(), At::Start)
            }
        },
        At::Revision(revision) => match source.watch(&gvk, revision) {
            Some(told) => (nothing(), At::Following { told, revision, since: Instant::now() }),
            None => (nothing(), At::Start),
        },
        At::Following { mut told, revision, since } => match told.next().await {
            Some(Told::Is(held)) => (one(Event::Apply(held.open())), At::Following { told, revision, since }),
            Some(Told::Was(held)) => (one(Event::Delete(held.open())), At::Following { told, revision, since }),
            Some(Told::Nothing(until)) => {
                let revision = until.parse().unwrap_or(revision);
                (nothing(), At::Following { told, revision, since })
            }
            Some(Told::Forgotten) => (nothing(), At::Start),
            None => {
                tokio::time::sleep(LASTS.saturating_sub(since.elapsed())).await;
                (nothing(), At::Revision(revision))
            }
        },
    })
}

/// A list, whose trees are there one after the other.
fn listed(objects: Vec<Arc<Packed>>, Reading { signs, take }: Reading) -> impl Stream<Item = Event<Arc<Value>>> {
    let objects = objects.into_iter().filter(move |object| signs.are_in(&object.text()));
    let objects = objects.map(move |object| Event::InitApply(object.part(take)));
    let all = std::iter::once(Event::Init).chain(objects).chain(std::iter::once(Event::InitDone));
    // of a hundred thousand objects others have their turn in between
    stream::iter(all).then(async |event| {
        tokio::task::consume_budget().await;
        event
    })
}
