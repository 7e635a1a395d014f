//! A long listing, asked for in stretches at once where an earlier one tells about how the keys are spread. What it tells is a guess:
//! whatever has become of the keys since, each is listed once, as it would be one page after the other.

use crate::http::Fault;
use crate::source::extent::Extent;
use crate::source::objects::{Object, Page};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Keys of a stretch: fewer than a page has, so that some may come between them.
const KEYS: usize = 900;
const AT_ONCE: usize = 32;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    Start,
    After(Arc<str>),
    /// Where the page ended that told this.
    Rest(String),
}

/// Every so many keys, one: stretches end with these.
pub fn bounds(mut known: Vec<&str>) -> Vec<Arc<str>> {
    known.sort_unstable();
    // what comes after the last has no end
    let end = known.len().saturating_sub(1);
    let mut bounds: Vec<Arc<str>> =
        known.iter().take(end).skip(KEYS - 1).step_by(KEYS).map(|key| Arc::from(*key)).collect();
    bounds.dedup();
    bounds
}

/// A part of a listing.
struct Stretch {
    objects: Vec<Object>,
    end: End,
}

/// How a stretch ended.
enum End {
    /// With its bound.
    Met,
    /// Before this key, the first one behind the bound; `None`: with the whole listing.
    Passed(Option<String>),
}

impl Stretch {
    fn first(&self) -> Option<&str> {
        match (self.objects.first(), &self.end) {
            (Some(object), _) => Some(&object.key),
            (None, End::Passed(key)) => key.as_deref(),
            (None, End::Met) => None,
        }
    }
}

/// All keys after `from`, to `bound`.
async fn stretch<F, P>(page: &F, extent: &Extent, mut from: From, bound: Option<&str>) -> Result<Stretch, Fault>
where
    F: Fn(From) -> P,
    P: Future<Output = Result<Page, Fault>>,
{
    let mut objects = Vec::new();
    let mut chain = extent.chain();
    loop {
        let page = page(from).await?;
        let next = page.counted(extent, &mut chain)?;
        let some = page.objects;
        objects.reserve(some.len());
        for object in some {
            if bound.is_some_and(|bound| *object.key > *bound) {
                return Ok(Stretch { objects, end: End::Passed(Some(object.key)) });
            }
            let is_met = bound == Some(&object.key);
            objects.push(object);
            if is_met {
                return Ok(Stretch { objects, end: End::Met });
            }
        }
        match next {
            Some(next) => from = From::Rest(next),
            None => return Ok(Stretch { objects, end: End::Passed(None) }),
        }
    }
}

/// What the stretches tell together, if each begins where the one before it ended. Else somebody adds or removes keys meanwhile, or the
/// server has another order, or knows no beginnings.
fn joined(stretches: Vec<Stretch>, bounds: &[Arc<str>]) -> Option<Vec<Object>> {
    let mut next = None;
    for (index, stretch) in stretches.iter().enumerate().rev() {
        let begins_after = index.checked_sub(1).and_then(|before| bounds.get(before));
        let is_behind = begins_after.zip(stretch.first()).is_none_or(|(bound, first)| *first > **bound);
        let is_next = match &stretch.end {
            End::Met => true,
            End::Passed(key) => key.as_deref() == next,
        };
        if !is_behind || !is_next {
            return None;
        }
        next = stretch.first();
    }
    let mut all = Vec::with_capacity(stretches.iter().map(|stretch| stretch.objects.len()).sum());
    stretches.into_iter().for_each(|stretch| all.extend(stretch.objects));
    Some(all)
}

/// `None`: it takes another way.
async fn at_once<F, P>(page: &F, extent: &Arc<Extent>, bounds: &[Arc<str>]) -> Result<Option<Vec<Object>>, Fault>
where
    F: Fn(From) -> P + Clone + Send + Sync + 'static,
    P: Future<Output = Result<Page, Fault>> + Send + 'static,
{
    let starts = std::iter::once(From::Start).chain(bounds.iter().cloned().map(From::After));
    let ends = bounds.iter().cloned().map(Some).chain([None]);
    let mut waiting = starts.zip(ends).enumerate();
    let mut running = JoinSet::new();
    let mut stretches: Vec<(usize, Stretch)> = Vec::new();
    loop {
        for (index, (from, bound)) in waiting.by_ref().take(AT_ONCE.saturating_sub(running.len())) {
            let (page, extent) = (page.clone(), Arc::clone(extent));
            running.spawn(async move { (index, stretch(&page, &extent, from, bound.as_deref()).await) });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((index, Ok(stretch)))) => stretches.push((index, stretch)),
            // the server has had all patience that there is
            Some(Ok((_, Err(fault @ Fault::Again(..))))) => return Err(fault),
            Some(Ok((_, Err(_))) | Err(_)) => return Ok(None),
        }
    }
    stretches.sort_unstable_by_key(|(index, _)| *index);
    Ok(joined(stretches.into_iter().map(|(_, stretch)| stretch).collect(), bounds))
}

/// All that `page` lists.
///
/// # Errors
/// As those of `page`.
pub async fn listed<F, P>(page: F, extent: Arc<Extent>, bounds: Vec<Arc<str>>) -> Result<Vec<Object>, Fault>
where
    F: Fn(From) -> P + Clone + Send + Sync + 'static,
    P: Future<Output = Result<Page, Fault>> + Send + 'static,
{
    if !bounds.is_empty()
        && let Some(all) = at_once(&page, &extent, &bounds).await?
    {
        return Ok(all);
    }
    // what the other way listed is gone
    let extent = extent.anew();
    Ok(stretch(&page, &extent, From::Start, None).await?.objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::error::{Error, Kind};
    use proptest::prelude::*;
    use std::cmp::Ordering;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Order {
        Bytes,
        /// As some file systems have it.
        Letters,
        Backwards,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Beginnings {
        Kept,
        PassedOver,
        Refused,
    }

    /// A server of few keys a page.
    #[derive(Clone, Debug)]
    struct Server {
        keys: BTreeSet<String>,
        order: Order,
        beginnings: Beginnings,
        most: usize,
        /// Keys that come, or go if they are there, one before each page.
        changes: Vec<String>,
    }

    impl Server {
        fn compare(&self, one: &str, other: &str) -> Ordering {
            match self.order {
                Order::Bytes => one.cmp(other),
                Order::Letters => one.to_lowercase().cmp(&other.to_lowercase()).then(one.cmp(other)),
                Order::Backwards => other.cmp(one),
            }
        }

        fn page(&mut self, from: &From) -> Result<Page, Fault> {
            if let Some(key) = self.changes.pop()
                && !self.keys.remove(&key)
            {
                self.keys.insert(key);
            }
            let after = match (from, self.beginnings) {
                (From::Rest(token), _) => Some(token.as_str()),
                (From::After(key), Beginnings::Kept) => Some(&**key),
                (From::After(_), Beginnings::Refused) => return Err(Error::new(Kind::Other, "start-after?").into()),
                (From::After(_), Beginnings::PassedOver) | (From::Start, _) => None,
            };
            let mut keys: Vec<&String> = self.keys.iter().collect();
            keys.sort_by(|one, other| self.compare(one, other));
            keys.retain(|key| after.is_none_or(|after| self.compare(key, after) == Ordering::Greater));
            let next = keys.get(self.most).and_then(|_| keys.get(self.most - 1)).map(|key| (*key).clone());
            keys.truncate(self.most);
            let object = |key: &String| Object {
                key: key.clone(),
                size: 1,
                version: None,
                check: None,
                is_mark: false,
                is_garbled: false,
                is_packed: false,
            };
            Ok(Page { objects: keys.into_iter().map(object).collect(), next, ..Page::default() })
        }
    }

    /// What is listed, and how many pages it takes.
    fn list(server: &Server, bounds: &[String]) -> (Vec<String>, usize) {
        let shared = Arc::new(Mutex::new((server.clone(), 0)));
        let ours = Arc::clone(&shared);
        let page = move |from: From| {
            let mut shared = ours.lock().unwrap();
            shared.1 += 1;
            std::future::ready(shared.0.page(&from))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bounds = bounds.iter().map(|key| key.as_str().into()).collect();
        let all = runtime.block_on(listed(page, Arc::new(Extent::new(String::new(), 1 << 30)), bounds)).unwrap();
        let pages = shared.lock().unwrap().1;
        (all.into_iter().map(|object| object.key).collect(), pages)
    }

    fn keys(most: usize) -> impl Strategy<Value = BTreeSet<String>> {
        prop::collection::btree_set("[a-cA-C]{1,3}", 0..most)
    }

    fn orders() -> impl Strategy<Value = Order> {
        prop::sample::select(&[Order::Bytes, Order::Letters, Order::Backwards][..])
    }

    fn beginnings() -> impl Strategy<Value = Beginnings> {
        prop::sample::select(&[Beginnings::Kept, Beginnings::PassedOver, Beginnings::Refused][..])
    }

    proptest! {
        /// Whatever the server does, and whatever is taken for bounds.
        #[test]
        fn stretches_list_what_pages_do(
            keys in keys(60), bounds in keys(50), order in orders(), beginnings in beginnings(), most in 1_usize..9,
        ) {
            let server = Server { keys, order, beginnings, most, changes: Vec::new() };
            let bounds: Vec<String> = bounds.into_iter().collect();
            prop_assert_eq!(list(&server, &bounds).0, list(&server, &[]).0);
        }

        #[test]
        fn keys_that_come_and_go_harm_no_others(
            keys in keys(60), bounds in keys(50), changes in prop::collection::vec("[a-cA-C]{1,3}", 0..40), most in 1_usize..9,
        ) {
            let server = Server { keys, order: Order::Bytes, beginnings: Beginnings::Kept, most, changes };
            let bounds: Vec<String> = bounds.into_iter().collect();
            let found = list(&server, &bounds).0;
            let ever: BTreeSet<&String> = server.keys.iter().chain(&server.changes).collect();
            prop_assert!(found.windows(2).all(|two| two[0] < two[1]), "{:?}", found);
            prop_assert!(found.iter().all(|key| ever.contains(key)), "{:?}", found);
            let stayed = server.keys.iter().filter(|key| !server.changes.contains(key));
            prop_assert!(stayed.into_iter().all(|key| found.contains(key)), "{:?}", found);
        }
    }

    #[test]
    fn what_is_as_it_was_takes_a_page_a_stretch() {
        let keys: BTreeSet<String> = (0..10 * KEYS).map(|index| format!("{index:06}")).collect();
        let known: Vec<&str> = keys.iter().rev().map(String::as_str).collect();
        let bounds: Vec<String> = bounds(known).iter().map(|key| key.to_string()).collect();
        let server =
            Server { keys, order: Order::Bytes, beginnings: Beginnings::Kept, most: 1000, changes: Vec::new() };
        let (found, pages) = list(&server, &bounds);
        assert_eq!((found.len(), pages, bounds.len()), (10 * KEYS, 10, 9));
        assert!(super::bounds(vec!["a", "b"]).is_empty() && super::bounds(Vec::new()).is_empty());
    }
}
